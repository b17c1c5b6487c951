// GELU adds its tanh to 1, and approximates it. A tanh that is a result is accurate. No launch
// writes what these kernels read.
// REQUIRES: compiler
// RUN: tessera compile --from partition %s --mode artifact --target cuda:sm_80 --cache off -o %t.tsr
// RUN: tessera inspect %t.tsr --show=gelu | FileCheck %s --check-prefix=GELU
// RUN: tessera inspect %t.tsr --show=tanh | FileCheck %s --check-prefix=TANH
// GELU: const float *__restrict__ {{[a-z_]+}} = instance.buffer<const float>(0);
// GELU: {{^ +}}float *{{[a-z_]+}} = instance.buffer<float>(1);
// GELU: tanhApproximate(
// TANH: const float *__restrict__
// TANH-NOT: tanhApproximate(
// TANH: tanh(
module attributes {
  tessera.phase = "partition",
  tessera.config = "{\"model_type\": \"none\", \"vocab_size\": 64}",
  tessera.recipe = "precision: {compute: fp32}\n"
} {
func.func @activations(%x: tensor<64x512xf32> {graph.input = "x"}, %y: tensor<32x512xf32> {graph.input = "y"})
    -> (tensor<64x512xf32> {graph.output = "gelu"}, tensor<32x512xf32> {graph.output = "tanh"}) {
  %gelu = graph.gelu %x tanh : tensor<64x512xf32>
  %tanh = graph.tanh %y : tensor<32x512xf32>
  return %gelu, %tanh : tensor<64x512xf32>, tensor<32x512xf32>
}
}
