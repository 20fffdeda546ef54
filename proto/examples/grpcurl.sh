#!/bin/sh
# The sum and the mean of four f32, by grpcurl and the server's reflection. Usage: grpcurl.sh ADDRESS
# inline_data is the elements in base64: here 1, 2, 3 and 4.
grpcurl -plaintext -d '{
  "array": {"dtype": "DTYPE_F32", "shape": [4]},
  "ops": ["OP_SUM", "OP_MEAN"],
  "inlineData": "AACAPwAAAEAAAEBAAACAQA=="
}' "${1:-127.0.0.1:50051}" reduced.v1.Reduction/Reduce
