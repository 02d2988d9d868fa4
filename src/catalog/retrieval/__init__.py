"""Search as plain functions, without a framework.

search.py       the search itself: read, rank, fuse, select, refine, shape
searcher.py     the search of one opened store
request.py      the parameters of a call, checked
legs.py         one leg: by words or by meaning
route.py        documents chosen first, if the router is on
refine.py       rerank, relevance, cuts, best sentences, temporal expansion
shape.py        passages as results
"""
