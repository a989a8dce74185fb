"""Where do memories live?"""
