"""The road with one's own data, from a table to a classifier that does not lean on given words.

`suspects` finds words that predict the label, `leans` which of them a model follows, and `debias`
trains one with words hidden. `mtlib` has these three, too.
"""
