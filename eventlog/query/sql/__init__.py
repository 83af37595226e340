"""SQL expressions: the text is bounded, parsed and translated into conditions and values.

Pure; imports `query.conditions` and below. Start at `parsing`, then read `values` and `literals`;
`arithmetic`, `casts` and `functions` state what each operation returns, and where it fails.
"""
