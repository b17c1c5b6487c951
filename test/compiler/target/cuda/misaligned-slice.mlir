// Chunks of 16 bytes are copied out of a slice that begins at no multiple of
// them in every iteration: found when the artifact is written. With rows of 24
// elements they are aligned.
// REQUIRES: compiler
// RUN: not tessera compile --from partition %s --mode artifact --target cuda:sm_80 --cache off -o %t.tsr 2>&1 | FileCheck %s
// CHECK: copies 16 bytes at a time from buffer {{[0-9]}}, which a launch lets begin 8 bytes after a multiple of 16
// RUN: sed 's/x20x/x24x/g; s/<20x/<24x/g' %s >%t.mlir
// RUN: tessera compile --from partition %t.mlir --mode artifact --target cuda:sm_80 --cache off -o %t.tsr
module attributes {
  tessera.phase = "partition",
  tessera.config = "{\"model_type\": \"none\", \"vocab_size\": 64}",
  tessera.recipe = "precision: {compute: bf16}\n"
} {
func.func @sum_of_products(%x: tensor<4x20xbf16> {graph.input = "x"}, %w: tensor<48x20xbf16> {graph.input = "w"},
                           %start: tensor<48xf32> {graph.input = "start"})
    -> (tensor<48xf32> {graph.output = "y"}) {
  %y = graph.loop 4 (%i, %sum = %start) : (tensor<48xf32>) {
    %part = graph.dynamic_slice %x[%i] : tensor<4x20xbf16>, tensor<i32> -> tensor<20xbf16>
    %product = graph.einsum "k,nk->n" %part, %w : (tensor<20xbf16>, tensor<48x20xbf16>) -> tensor<48xf32>
    %next = graph.add %sum, %product : tensor<48xf32>
    graph.yield %next : tensor<48xf32>
  }
  return %y : tensor<48xf32>
}
}
