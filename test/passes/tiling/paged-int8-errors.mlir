// RUN: tessera-opt %s --tile-clusters=targets=cuda:sm_80 --verify-diagnostics

func.func @int8(%q: tensor<2x1x4x64xbf16>, %k: tensor<5x64x2x64xi8>, %s: tensor<5x64x2x1xbf16>, %t: tensor<2x3xi32>, %l: tensor<2xi32>) -> tensor<2x1x4x64xbf16> {
  // expected-error @+1 {{there are no kernels of keys and values as integers for GPUs}}
  %a = graph.cluster paged_attention "int8"(%q, %k, %s, %t, %l) : (tensor<2x1x4x64xbf16>, tensor<5x64x2x64xi8>, tensor<5x64x2x1xbf16>, tensor<2x3xi32>, tensor<2xi32>) -> tensor<2x1x4x64xbf16> {
  ^bb0(%b: tensor<2x1x4x64xbf16>, %c: tensor<5x64x2x64xi8>, %d: tensor<5x64x2x1xbf16>, %e: tensor<2x3xi32>, %f: tensor<2xi32>):
    %g = graph.dequantize_rows %c, %d : tensor<5x64x2x64xi8>, tensor<5x64x2x1xbf16> -> tensor<5x64x2x64xbf16>
    %h = graph.paged_attention %b, %g, %g pages %e starts %f lengths %f scale 0.5 : tensor<2x1x4x64xbf16>, tensor<5x64x2x64xbf16>, tensor<2x3xi32>, tensor<2xi32>
    graph.yield %h : tensor<2x1x4x64xbf16>
  }
  return %a : tensor<2x1x4x64xbf16>
}
