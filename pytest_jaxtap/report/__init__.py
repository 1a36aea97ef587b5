"""PYTEST_DONT_REWRITE

Reports for people and for CI, each made of the same plain records of tests (`pytest_jaxtap.observe.wire`).
"""
