"""The parts of `eventlog.compaction.lambda_handler`, and its deployment to AWS.

Imports eventlog and compaction; nothing that a Lambda function lacks. Reading order:
`events`, `invocation`, `lambda_settings`, `work`, `json_lines`. `replicating` is the function that
keeps copies up to date; `bundle` builds the code, `template.yaml` the stack.
"""
