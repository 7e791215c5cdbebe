"""Pictures of what a model does: each module makes one kind, an HTML page that needs nothing else.

A module has a function from arrays and texts to a `page.Page`; a page is a file, or the result of a
cell in a notebook. `page` also has what pictures share: texts as HTML, and figures of matplotlib.
"""
