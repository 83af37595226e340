"""The S3 adapter: boto3 clients, retries, and the interpretation of answers.

Start at `adapter`.
"""
