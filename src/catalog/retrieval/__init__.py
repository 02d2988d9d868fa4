"""Search as plain functions, without a framework.

searcher.py     the search itself: read, gather, refine, shape; and the service that runs it
request.py      the parameters of a call, checked
legs.py         one leg: by words or by meaning
hybrid.py       legs at the same time, fused over one state of the store
candidates.py   routing, depth, expansion and selection around them
refine.py       rerank, relevance, cuts, best sentences, temporal expansion
shape.py        passages as results
"""
