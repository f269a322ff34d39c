"""Groups of workers: what is wanted of each, what there is, and what to do about the difference.

Pure: values in, decisions out. Names and defaults of settings are Amoro's.
"""
