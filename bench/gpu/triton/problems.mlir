// The problems of check.py, one program each, for `tessera compile --from partition`.
module attributes {
  tessera.phase = "partition",
  tessera.config = "{\"model_type\": \"none\", \"vocab_size\": 50304}",
  tessera.recipe = "precision: {compute: bf16}\n"
} {

func.func @matmul(%x: tensor<8192x8192xbf16> {graph.input = "x"}, %w: tensor<8192x8192xbf16> {graph.input = "w"})
    -> (tensor<8192x8192xbf16> {graph.output = "y"}) {
  %y = graph.einsum "mk,nk->mn" %x, %w : (tensor<8192x8192xbf16>, tensor<8192x8192xbf16>) -> tensor<8192x8192xbf16>
  return %y : tensor<8192x8192xbf16>
}

func.func @matmul_bias_gelu(%x: tensor<8192x1024xbf16> {graph.input = "x"}, %w: tensor<4096x1024xbf16> {graph.input = "w"},
                            %b: tensor<4096xbf16> {graph.input = "b"}) -> (tensor<8192x4096xbf16> {graph.output = "y"}) {
  %p = graph.einsum "mk,nk->mn" %x, %w : (tensor<8192x1024xbf16>, tensor<4096x1024xbf16>) -> tensor<8192x4096xf32>
  %bw = graph.convert %b : tensor<4096xbf16> -> tensor<4096xf32>
  %bs = graph.broadcast %bw dims [1] : tensor<4096xf32> -> tensor<8192x4096xf32>
  %z = graph.add %p, %bs : tensor<8192x4096xf32>
  %g = graph.gelu %z tanh : tensor<8192x4096xf32>
  %y = graph.convert %g : tensor<8192x4096xf32> -> tensor<8192x4096xbf16>
  return %y : tensor<8192x4096xbf16>
}

func.func @attention_d64(%q: tensor<2x8192x32x64xbf16> {graph.input = "q"}, %k: tensor<2x8192x32x64xbf16> {graph.input = "k"},
                         %v: tensor<2x8192x32x64xbf16> {graph.input = "v"})
    -> (tensor<2x8192x32x64xbf16> {graph.output = "o"}, tensor<2x32x8192xf32> {graph.output = "lse"}) {
  %o, %lse = graph.attention %q, %k, %v scale 0.125 {causal} : tensor<2x8192x32x64xbf16>, tensor<2x8192x32x64xbf16>, tensor<2x8192x32x64xbf16> -> tensor<2x8192x32x64xbf16>, tensor<2x32x8192xf32>
  return %o, %lse : tensor<2x8192x32x64xbf16>, tensor<2x32x8192xf32>
}

func.func @attention_d128(%q: tensor<2x8192x16x128xbf16> {graph.input = "q"}, %k: tensor<2x8192x16x128xbf16> {graph.input = "k"},
                          %v: tensor<2x8192x16x128xbf16> {graph.input = "v"})
    -> (tensor<2x8192x16x128xbf16> {graph.output = "o"}, tensor<2x16x8192xf32> {graph.output = "lse"}) {
  %o, %lse = graph.attention %q, %k, %v scale 0.08838834764831845 {causal} : tensor<2x8192x16x128xbf16>, tensor<2x8192x16x128xbf16>, tensor<2x8192x16x128xbf16> -> tensor<2x8192x16x128xbf16>, tensor<2x16x8192xf32>
  return %o, %lse : tensor<2x8192x16x128xbf16>, tensor<2x16x8192xf32>
}

func.func @layer_norm(%x: tensor<16384x4096xbf16> {graph.input = "x"}, %w: tensor<4096xf32> {graph.input = "w"},
                      %b: tensor<4096xf32> {graph.input = "b"}) -> (tensor<16384x4096xbf16> {graph.output = "y"}) {
  %wide = graph.convert %x : tensor<16384x4096xbf16> -> tensor<16384x4096xf32>
  %norm = graph.layer_norm %wide, %w, %b eps 1.0e-5 : tensor<16384x4096xf32>, tensor<4096xf32>, tensor<4096xf32>
  %y = graph.convert %norm : tensor<16384x4096xf32> -> tensor<16384x4096xbf16>
  return %y : tensor<16384x4096xbf16>
}

func.func @rms_norm(%x: tensor<16384x4096xbf16> {graph.input = "x"}, %w: tensor<4096xf32> {graph.input = "w"})
    -> (tensor<16384x4096xbf16> {graph.output = "y"}) {
  %wide = graph.convert %x : tensor<16384x4096xbf16> -> tensor<16384x4096xf32>
  %norm = graph.rms_norm %wide, %w eps 1.0e-5 : tensor<16384x4096xf32>, tensor<4096xf32>
  %y = graph.convert %norm : tensor<16384x4096xf32> -> tensor<16384x4096xbf16>
  return %y : tensor<16384x4096xbf16>
}

// Its second launch, from logits to their gradient and the loss of a row.
func.func @cross_entropy(%x: tensor<8192x768xbf16> {graph.input = "x"}, %w: tensor<50304x768xbf16> {graph.input = "w"},
                         %targets: tensor<8192xi32> {graph.input = "targets"})
    -> (tensor<f32> {graph.output = "loss"}, tensor<8192x768xbf16> {graph.output = "dx"}, tensor<50304x768xf32> {graph.output = "dw"}) {
  %scale = graph.constant dense<1.220703125e-4> : tensor<f32>
  %loss, %dx, %dw = graph.linear_cross_entropy_grad %x, %w, %targets, %scale : (tensor<8192x768xbf16>, tensor<50304x768xbf16>, tensor<8192xi32>, tensor<f32>) -> (tensor<f32>, tensor<8192x768xbf16>, tensor<50304x768xf32>)
  return %loss, %dx, %dw : tensor<f32>, tensor<8192x768xbf16>, tensor<50304x768xf32>
}

func.func @gemv(%x: tensor<1x2048xbf16> {graph.input = "x"}, %w: tensor<8192x2048xbf16> {graph.input = "w"})
    -> (tensor<1x8192xbf16> {graph.output = "y"}) {
  %y = graph.einsum "mk,nk->mn" %x, %w : (tensor<1x2048xbf16>, tensor<8192x2048xbf16>) -> tensor<1x8192xbf16>
  return %y : tensor<1x8192xbf16>
}

}
