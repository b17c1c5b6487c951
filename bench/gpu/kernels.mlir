// Single kernels, at the sizes at which libraries are compared. Each function
// becomes one program of an artifact:
//   tessera compile --from partition bench/gpu/kernels.mlir --mode artifact \
//     --target cuda:sm_90a --no-emulate -o kernels.tsr
// The attributes replace those of a model's configuration and recipe.
module attributes {
  tessera.phase = "partition",
  tessera.config = "{\"model_type\": \"none\", \"vocab_size\": 50304}",
  tessera.recipe = "precision: {compute: bf16}\n"
} {

//===--- attention, causal, 2 × 8192 tokens ------------------------------===//

func.func @attention_d128(%q: tensor<2x8192x16x128xbf16> {graph.input = "q"}, %k: tensor<2x8192x16x128xbf16> {graph.input = "k"},
                          %v: tensor<2x8192x16x128xbf16> {graph.input = "v"})
    -> (tensor<2x8192x16x128xbf16> {graph.output = "o"}, tensor<2x16x8192xf32> {graph.output = "lse"}) {
  %o, %lse = graph.attention %q, %k, %v scale 0.08838834764831845 {causal} : tensor<2x8192x16x128xbf16>, tensor<2x8192x16x128xbf16>, tensor<2x8192x16x128xbf16> -> tensor<2x8192x16x128xbf16>, tensor<2x16x8192xf32>
  return %o, %lse : tensor<2x8192x16x128xbf16>, tensor<2x16x8192xf32>
}

func.func @attention_d128_backward(%q: tensor<2x8192x16x128xbf16> {graph.input = "q"}, %k: tensor<2x8192x16x128xbf16> {graph.input = "k"},
                                   %v: tensor<2x8192x16x128xbf16> {graph.input = "v"}, %o: tensor<2x8192x16x128xbf16> {graph.input = "o"},
                                   %lse: tensor<2x16x8192xf32> {graph.input = "lse"}, %cotangent: tensor<2x8192x16x128xbf16> {graph.input = "cotangent"})
    -> (tensor<2x8192x16x128xbf16> {graph.output = "dq"}, tensor<2x8192x16x128xbf16> {graph.output = "dk"}, tensor<2x8192x16x128xbf16> {graph.output = "dv"}) {
  %dq, %dk, %dv = graph.attention_grad %q, %k, %v, %o, %lse, %cotangent scale 0.08838834764831845 {causal} : tensor<2x8192x16x128xbf16>, tensor<2x8192x16x128xbf16>, tensor<2x8192x16x128xbf16>, tensor<2x8192x16x128xbf16>, tensor<2x16x8192xf32>, tensor<2x8192x16x128xbf16>
  return %dq, %dk, %dv : tensor<2x8192x16x128xbf16>, tensor<2x8192x16x128xbf16>, tensor<2x8192x16x128xbf16>
}

func.func @attention_d64(%q: tensor<2x8192x32x64xbf16> {graph.input = "q"}, %k: tensor<2x8192x32x64xbf16> {graph.input = "k"},
                         %v: tensor<2x8192x32x64xbf16> {graph.input = "v"})
    -> (tensor<2x8192x32x64xbf16> {graph.output = "o"}, tensor<2x32x8192xf32> {graph.output = "lse"}) {
  %o, %lse = graph.attention %q, %k, %v scale 0.125 {causal} : tensor<2x8192x32x64xbf16>, tensor<2x8192x32x64xbf16>, tensor<2x8192x32x64xbf16> -> tensor<2x8192x32x64xbf16>, tensor<2x32x8192xf32>
  return %o, %lse : tensor<2x8192x32x64xbf16>, tensor<2x32x8192xf32>
}

func.func @attention_d64_backward(%q: tensor<2x8192x32x64xbf16> {graph.input = "q"}, %k: tensor<2x8192x32x64xbf16> {graph.input = "k"},
                                  %v: tensor<2x8192x32x64xbf16> {graph.input = "v"}, %o: tensor<2x8192x32x64xbf16> {graph.input = "o"},
                                  %lse: tensor<2x32x8192xf32> {graph.input = "lse"}, %cotangent: tensor<2x8192x32x64xbf16> {graph.input = "cotangent"})
    -> (tensor<2x8192x32x64xbf16> {graph.output = "dq"}, tensor<2x8192x32x64xbf16> {graph.output = "dk"}, tensor<2x8192x32x64xbf16> {graph.output = "dv"}) {
  %dq, %dk, %dv = graph.attention_grad %q, %k, %v, %o, %lse, %cotangent scale 0.125 {causal} : tensor<2x8192x32x64xbf16>, tensor<2x8192x32x64xbf16>, tensor<2x8192x32x64xbf16>, tensor<2x8192x32x64xbf16>, tensor<2x32x8192xf32>, tensor<2x8192x32x64xbf16>
  return %dq, %dk, %dv : tensor<2x8192x32x64xbf16>, tensor<2x8192x32x64xbf16>, tensor<2x8192x32x64xbf16>
}

//===--- matmuls ---------------------------------------------------------===//

func.func @matmul_8192x8192x2048(%x: tensor<8192x2048xbf16> {graph.input = "x"}, %w: tensor<8192x2048xbf16> {graph.input = "w"})
    -> (tensor<8192x8192xbf16> {graph.output = "y"}) {
  %y = graph.einsum "mk,nk->mn" %x, %w : (tensor<8192x2048xbf16>, tensor<8192x2048xbf16>) -> tensor<8192x8192xbf16>
  return %y : tensor<8192x8192xbf16>
}

func.func @matmul_8192x2048x8192(%x: tensor<8192x8192xbf16> {graph.input = "x"}, %w: tensor<2048x8192xbf16> {graph.input = "w"})
    -> (tensor<8192x2048xbf16> {graph.output = "y"}) {
  %y = graph.einsum "mk,nk->mn" %x, %w : (tensor<8192x8192xbf16>, tensor<2048x8192xbf16>) -> tensor<8192x2048xbf16>
  return %y : tensor<8192x2048xbf16>
}

func.func @matmul_8192x8192x8192(%x: tensor<8192x8192xbf16> {graph.input = "x"}, %w: tensor<8192x8192xbf16> {graph.input = "w"})
    -> (tensor<8192x8192xbf16> {graph.output = "y"}) {
  %y = graph.einsum "mk,nk->mn" %x, %w : (tensor<8192x8192xbf16>, tensor<8192x8192xbf16>) -> tensor<8192x8192xbf16>
  return %y : tensor<8192x8192xbf16>
}

//===--- rows of 16384 × 4096 --------------------------------------------===//

func.func @rms_norm(%x: tensor<16384x4096xbf16> {graph.input = "x"}, %w: tensor<4096xf32> {graph.input = "w"})
    -> (tensor<16384x4096xbf16> {graph.output = "y"}) {
  %wide = graph.convert %x : tensor<16384x4096xbf16> -> tensor<16384x4096xf32>
  %norm = graph.rms_norm %wide, %w eps 1.0e-5 : tensor<16384x4096xf32>, tensor<4096xf32>
  %y = graph.convert %norm : tensor<16384x4096xf32> -> tensor<16384x4096xbf16>
  return %y : tensor<16384x4096xbf16>
}

// y = x r w with r = (mean x² + ε)^-½: dx = r (g - x̂ mean(g x̂)) where x̂ = x r
// and g = dy w, and dw is the sum of dy x̂ over rows.
func.func @rms_norm_backward(%x: tensor<16384x4096xbf16> {graph.input = "x"}, %w: tensor<4096xf32> {graph.input = "w"},
                             %dy: tensor<16384x4096xbf16> {graph.input = "dy"})
    -> (tensor<16384x4096xbf16> {graph.output = "dx"}, tensor<4096xf32> {graph.output = "dw"}) {
  %eps = graph.constant dense<1.0e-5> : tensor<16384xf32>
  %part = graph.constant dense<2.44140625e-4> : tensor<16384xf32>
  %xw = graph.convert %x : tensor<16384x4096xbf16> -> tensor<16384x4096xf32>
  %dyw = graph.convert %dy : tensor<16384x4096xbf16> -> tensor<16384x4096xf32>
  %squares = graph.mul %xw, %xw : tensor<16384x4096xf32>
  %sum = graph.reduce %squares sum dims [1] : tensor<16384x4096xf32> -> tensor<16384xf32>
  %mean = graph.mul %sum, %part : tensor<16384xf32>
  %moved = graph.add %mean, %eps : tensor<16384xf32>
  %r = graph.rsqrt %moved : tensor<16384xf32>
  %rs = graph.broadcast %r dims [0] : tensor<16384xf32> -> tensor<16384x4096xf32>
  %hat = graph.mul %xw, %rs : tensor<16384x4096xf32>
  %ws = graph.broadcast %w dims [1] : tensor<4096xf32> -> tensor<16384x4096xf32>
  %g = graph.mul %dyw, %ws : tensor<16384x4096xf32>
  %terms = graph.mul %g, %hat : tensor<16384x4096xf32>
  %dot = graph.reduce %terms sum dims [1] : tensor<16384x4096xf32> -> tensor<16384xf32>
  %along = graph.mul %dot, %part : tensor<16384xf32>
  %alongs = graph.broadcast %along dims [0] : tensor<16384xf32> -> tensor<16384x4096xf32>
  %back = graph.mul %hat, %alongs : tensor<16384x4096xf32>
  %rest = graph.sub %g, %back : tensor<16384x4096xf32>
  %dxw = graph.mul %rs, %rest : tensor<16384x4096xf32>
  %dx = graph.convert %dxw : tensor<16384x4096xf32> -> tensor<16384x4096xbf16>
  %dws = graph.mul %dyw, %hat : tensor<16384x4096xf32>
  %dw = graph.reduce %dws sum dims [0] : tensor<16384x4096xf32> -> tensor<4096xf32>
  return %dx, %dw : tensor<16384x4096xbf16>, tensor<4096xf32>
}

//===--- head and loss, forward and backward in one ----------------------===//

func.func @cross_entropy(%x: tensor<8192x2048xbf16> {graph.input = "x"}, %w: tensor<50304x2048xbf16> {graph.input = "w"},
                         %targets: tensor<8192xi32> {graph.input = "targets"})
    -> (tensor<f32> {graph.output = "loss"}, tensor<8192x2048xbf16> {graph.output = "dx"}, tensor<50304x2048xf32> {graph.output = "dw"}) {
  %scale = graph.constant dense<1.220703125e-4> : tensor<f32>
  %loss, %dx, %dw = graph.linear_cross_entropy_grad %x, %w, %targets, %scale : (tensor<8192x2048xbf16>, tensor<50304x2048xbf16>, tensor<8192xi32>, tensor<f32>) -> (tensor<f32>, tensor<8192x2048xbf16>, tensor<50304x2048xf32>)
  return %loss, %dx, %dw : tensor<f32>, tensor<8192x2048xbf16>, tensor<50304x2048xf32>
}

}
