"""Search as plain functions, without a framework.

search.py       the search itself: route, rank, fuse, select, refine, shape
request.py      the parameters of a call, checked
legs.py         the legs: by words or by meaning
parts.py        what searches share: models, caches, calibrations
shape.py        passages as results
"""
