"""Images: folders, lists of files and prepared data sets; random changes of training images."""
