"""stub"""
def write_report(*a): pass
