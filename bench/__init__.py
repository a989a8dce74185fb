"""How fast is it, compared with what it is made of and with what one would write instead?"""
