"""The parts of `eventlog.compaction.lambda_handler`, and its deployment to AWS.

Imports eventlog and compaction; nothing that a Lambda function lacks. Reading order:
`events`, `invocation`, `settings`, `work`, `json_lines`; `bundle` builds the code, `template.yaml`
the stack.
"""
