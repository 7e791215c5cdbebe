"""The files that sentence-transformers has beside a model: how it makes vectors of texts.

    modules.json                       list of modules, each with its type and its folder
    FOLDER/config.json                 of a pooling, a dense map, …; their weights beside it
    sentence_bert_config.json          beside the encoder: the longest text, lower-casing
    config_sentence_transformers.json  prompts, similarity function, number of values of a vector

They are read in all forms since version 0: each field is computed, written back, or refused by its
name. Source: version 6.2, base/model.py, base/modules/ and sentence_transformer/modules/.
"""
