// RUN: tessera-opt %s | tessera-opt | FileCheck %s
// RUN: tessera-opt %s --mlir-print-op-generic | tessera-opt | FileCheck %s
// Every op in its own syntax survives printing and parsing, plain and generic.

// CHECK-LABEL: func @elementwise
func.func @elementwise(%x: tensor<2x3xf32>, %y: tensor<2x3xf32>, %i: tensor<2x3xi32>) -> tensor<2x3xf32> {
  // CHECK: graph.neg %{{.*}} : tensor<2x3xf32>
  %0 = graph.neg %x : tensor<2x3xf32>
  // CHECK: graph.abs
  %1 = graph.abs %x : tensor<2x3xf32>
  // CHECK: graph.exp
  %2 = graph.exp %x : tensor<2x3xf32>
  // CHECK: graph.log
  %3 = graph.log %x : tensor<2x3xf32>
  // CHECK: graph.log1p
  %log1p = graph.log1p %x : tensor<2x3xf32>
  // CHECK: graph.sqrt
  %4 = graph.sqrt %x : tensor<2x3xf32>
  // CHECK: graph.rsqrt
  %5 = graph.rsqrt %x : tensor<2x3xf32>
  // CHECK: graph.tanh
  %6 = graph.tanh %x : tensor<2x3xf32>
  // CHECK: graph.erf
  %7 = graph.erf %x : tensor<2x3xf32>
  // CHECK: graph.sin
  %8 = graph.sin %x : tensor<2x3xf32>
  // CHECK: graph.cos
  %9 = graph.cos %x : tensor<2x3xf32>
  // CHECK: graph.sigmoid
  %10 = graph.sigmoid %x : tensor<2x3xf32>
  // CHECK: graph.relu
  %11 = graph.relu %x : tensor<2x3xf32>
  // CHECK: graph.silu
  %12 = graph.silu %x : tensor<2x3xf32>
  // CHECK: graph.gelu %{{.*}} erf : tensor<2x3xf32>
  %13 = graph.gelu %x erf : tensor<2x3xf32>
  // CHECK: graph.gelu %{{.*}} quick : tensor<2x3xf32>
  %14 = graph.gelu %x quick : tensor<2x3xf32>
  // CHECK: graph.gelu_grad %{{.*}}, %{{.*}} tanh : tensor<2x3xf32>
  %15 = graph.gelu_grad %x, %y tanh : tensor<2x3xf32>
  // CHECK: graph.add %{{.*}}, %{{.*}} : tensor<2x3xi32>
  %16 = graph.add %i, %i : tensor<2x3xi32>
  // CHECK: graph.sub
  %17 = graph.sub %x, %y : tensor<2x3xf32>
  // CHECK: graph.mul
  %18 = graph.mul %x, %y : tensor<2x3xf32>
  // CHECK: graph.div
  %19 = graph.div %x, %y : tensor<2x3xf32>
  // CHECK: graph.max
  %20 = graph.max %x, %y : tensor<2x3xf32>
  // CHECK: graph.min
  %21 = graph.min %x, %y : tensor<2x3xf32>
  // CHECK: graph.pow
  %22 = graph.pow %x, %y : tensor<2x3xf32>
  // CHECK: graph.compare %{{.*}} lt %{{.*}} : tensor<2x3xf32> -> tensor<2x3xi1>
  %23 = graph.compare %x lt %y : tensor<2x3xf32> -> tensor<2x3xi1>
  // CHECK: graph.compare %{{.*}} ne %{{.*}} : tensor<2x3xi32> -> tensor<2x3xi1>
  %24 = graph.compare %i ne %i : tensor<2x3xi32> -> tensor<2x3xi1>
  // CHECK: graph.and
  %25 = graph.and %23, %24 : tensor<2x3xi1>
  // CHECK: graph.or
  %26 = graph.or %23, %25 : tensor<2x3xi1>
  // CHECK: graph.select %{{.*}}, %{{.*}}, %{{.*}} : tensor<2x3xi1>, tensor<2x3xf32>
  %27 = graph.select %26, %x, %y : tensor<2x3xi1>, tensor<2x3xf32>
  // CHECK: graph.convert %{{.*}} : tensor<2x3xf32> -> tensor<2x3xbf16>
  %28 = graph.convert %27 : tensor<2x3xf32> -> tensor<2x3xbf16>
  return %27 : tensor<2x3xf32>
}

// CHECK-LABEL: func @shapes
func.func @shapes(%x: tensor<2x3xf32>, %i: tensor<i32>) -> tensor<3x2xf32> {
  // CHECK: graph.constant dense<1.000000e+00> : tensor<f32>
  %0 = graph.constant dense<1.0> : tensor<f32>
  // CHECK: graph.iota dim 1 : tensor<2x3xi32>
  %1 = graph.iota dim 1 : tensor<2x3xi32>
  // CHECK: graph.reshape %{{.*}} : tensor<2x3xf32> -> tensor<6xf32>
  %2 = graph.reshape %x : tensor<2x3xf32> -> tensor<6xf32>
  // CHECK: graph.transpose %{{.*}} [1, 0] : tensor<2x3xf32> -> tensor<3x2xf32>
  %3 = graph.transpose %x [1, 0] : tensor<2x3xf32> -> tensor<3x2xf32>
  // CHECK: graph.broadcast %{{.*}} dims [] : tensor<f32> -> tensor<2x3xf32>
  %4 = graph.broadcast %0 dims [] : tensor<f32> -> tensor<2x3xf32>
  // CHECK: graph.broadcast %{{.*}} dims [0, 2] : tensor<2x3xf32> -> tensor<2x5x3xf32>
  %5 = graph.broadcast %x dims [0, 2] : tensor<2x3xf32> -> tensor<2x5x3xf32>
  // CHECK: graph.slice %{{.*}} [1, 0] : tensor<2x3xf32> -> tensor<1x2xf32>
  %6 = graph.slice %x [1, 0] : tensor<2x3xf32> -> tensor<1x2xf32>
  // CHECK: graph.concat %{{.*}}, %{{.*}} dim 0 : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<4x3xf32>
  %7 = graph.concat %x, %4 dim 0 : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<4x3xf32>
  // CHECK: graph.pad %{{.*}} low [1, 0] : tensor<2x3xf32> -> tensor<4x3xf32>
  %8 = graph.pad %x low [1, 0] : tensor<2x3xf32> -> tensor<4x3xf32>
  // CHECK: graph.dynamic_slice %{{.*}}[%{{.*}}] : tensor<2x3xf32>, tensor<i32> -> tensor<3xf32>
  %9 = graph.dynamic_slice %x[%i] : tensor<2x3xf32>, tensor<i32> -> tensor<3xf32>
  // CHECK: graph.dynamic_update %{{.*}} into %{{.*}}[%{{.*}}] : tensor<3xf32>, tensor<i32> -> tensor<2x3xf32>
  %10 = graph.dynamic_update %9 into %x[%i] : tensor<3xf32>, tensor<i32> -> tensor<2x3xf32>
  return %3 : tensor<3x2xf32>
}

// CHECK-LABEL: func @contractions
func.func @contractions(%x: tensor<2x4x8xbf16>, %w: tensor<8x16xbf16>, %table: tensor<10x4xf32>, %ids: tensor<2x3xi32>,
                        %seed: tensor<i64>) -> tensor<2x4x16xf32> {
  // CHECK: graph.einsum "btk,kn->btn" %{{.*}}, %{{.*}} : (tensor<2x4x8xbf16>, tensor<8x16xbf16>) -> tensor<2x4x16xf32>
  %0 = graph.einsum "btk,kn->btn" %x, %w : (tensor<2x4x8xbf16>, tensor<8x16xbf16>) -> tensor<2x4x16xf32>
  // CHECK: graph.reduce %{{.*}} sum dims [0, 1] : tensor<2x4x16xf32> -> tensor<16xf32>
  %1 = graph.reduce %0 sum dims [0, 1] : tensor<2x4x16xf32> -> tensor<16xf32>
  // CHECK: graph.reduce %{{.*}} max dims [2]
  %2 = graph.reduce %0 max dims [2] : tensor<2x4x16xf32> -> tensor<2x4xf32>
  // CHECK: graph.embedding %{{.*}}, %{{.*}} : (tensor<10x4xf32>, tensor<2x3xi32>) -> tensor<2x3x4xf32>
  %3 = graph.embedding %table, %ids : (tensor<10x4xf32>, tensor<2x3xi32>) -> tensor<2x3x4xf32>
  // CHECK: graph.scatter_add %{{.*}} at %{{.*}} onto %{{.*}} : tensor<2x3x4xf32>, tensor<2x3xi32>, tensor<10x4xf32>
  %4 = graph.scatter_add %3 at %ids onto %table : tensor<2x3x4xf32>, tensor<2x3xi32>, tensor<10x4xf32>
  // CHECK: graph.random normal stream 7 seed %{{.*}} step %{{.*}} : tensor<i64>, tensor<i64> -> tensor<5xf32>
  %5 = graph.random normal stream 7 seed %seed step %seed : tensor<i64>, tensor<i64> -> tensor<5xf32>
  // CHECK: graph.random uniform stream 0 seed %{{.*}} step %{{.*}} offset %{{.*}} : tensor<i64>, tensor<i64>, tensor<i64> -> tensor<5xf32>
  %6 = graph.random uniform stream 0 seed %seed step %seed offset %seed : tensor<i64>, tensor<i64>, tensor<i64> -> tensor<5xf32>
  return %0 : tensor<2x4x16xf32>
}

// CHECK-LABEL: func @composites
func.func @composites(%q: tensor<1x4x4x8xf32>, %kv: tensor<1x4x2x8xf32>, %w: tensor<8xf32>, %x: tensor<4x8xf32>,
                      %vocab: tensor<10x8xf32>, %targets: tensor<4xi32>, %seed: tensor<i64>, %one: tensor<f32>) -> tensor<f32> {
  // CHECK: graph.softmax %{{.*}} : tensor<4x8xf32>
  %0 = graph.softmax %x : tensor<4x8xf32>
  // CHECK: graph.layer_norm %{{.*}}, %{{.*}}, %{{.*}} eps 1.000000e-05 : tensor<4x8xf32>, tensor<8xf32>, tensor<8xf32>
  %1 = graph.layer_norm %x, %w, %w eps 1.0e-5 : tensor<4x8xf32>, tensor<8xf32>, tensor<8xf32>
  // CHECK: graph.layer_norm %{{.*}}, %{{.*}} eps 1.000000e-05 : tensor<4x8xf32>, tensor<8xf32>
  %2 = graph.layer_norm %x, %w eps 1.0e-5 : tensor<4x8xf32>, tensor<8xf32>
  // CHECK: graph.rms_norm %{{.*}}, %{{.*}} eps 5.000000e-01 : tensor<4x8xf32>, tensor<8xf32>
  %3 = graph.rms_norm %x, %w eps 0.5 : tensor<4x8xf32>, tensor<8xf32>
  // CHECK: graph.rope %{{.*}} {frequencies = array<f64: 1.000000e+00, 5.000000e-01, 2.500000e-01, 1.250000e-01>, inverse} : tensor<1x4x4x8xf32>
  %4 = graph.rope %q {frequencies = array<f64: 1.0, 0.5, 0.25, 0.125>, inverse} : tensor<1x4x4x8xf32>
  // CHECK: graph.dropout %{{.*}} rate 1.000000e-01 stream 2 seed %{{.*}} step %{{.*}} : tensor<4x8xf32>, tensor<i64>, tensor<i64>
  %5 = graph.dropout %x rate 1.0e-1 stream 2 seed %seed step %seed : tensor<4x8xf32>, tensor<i64>, tensor<i64>
  // CHECK: graph.attention %{{.*}}, %{{.*}}, %{{.*}} scale 5.000000e-01 {causal, window = 3 : i64} : tensor<1x4x4x8xf32>, tensor<1x4x2x8xf32>, tensor<1x4x2x8xf32> -> tensor<1x4x4x8xf32>, tensor<1x4x4xf32>
  %6, %lse = graph.attention %q, %kv, %kv scale 0.5 {causal, window = 3 : i64} : tensor<1x4x4x8xf32>, tensor<1x4x2x8xf32>, tensor<1x4x2x8xf32> -> tensor<1x4x4x8xf32>, tensor<1x4x4xf32>
  // CHECK: graph.attention %{{.*}} first %{{.*}} : tensor<1x4xi32> scale 5.000000e-01 {causal} : tensor<1x4x4x8xf32>, tensor<1x4x2x8xf32>
  %first = graph.constant dense<[[0, 0, 2, 2]]> : tensor<1x4xi32>
  %packed, %packedLse = graph.attention %q, %kv, %kv first %first : tensor<1x4xi32> scale 0.5 {causal} : tensor<1x4x4x8xf32>, tensor<1x4x2x8xf32>, tensor<1x4x2x8xf32> -> tensor<1x4x4x8xf32>, tensor<1x4x4xf32>
  // CHECK: graph.attention %{{.*}} first %{{.*}} : tensor<1x4xi32> last %{{.*}} : tensor<1x4xi32> scale 5.000000e-01 {causal}
  %last = graph.constant dense<[[1, 1, -1, -1]]> : tensor<1x4xi32>
  %joint, %jointLse = graph.attention %q, %kv, %kv first %first : tensor<1x4xi32> last %last : tensor<1x4xi32> scale 0.5 {causal} : tensor<1x4x4x8xf32>, tensor<1x4x2x8xf32>, tensor<1x4x2x8xf32> -> tensor<1x4x4x8xf32>, tensor<1x4x4xf32>
  // CHECK: graph.attention_grad %{{.*}} first %{{.*}} : tensor<1x4xi32> last %{{.*}} : tensor<1x4xi32> scale
  %jointGrad:3 = graph.attention_grad %q, %kv, %kv, %joint, %jointLse, %q first %first : tensor<1x4xi32> last %last : tensor<1x4xi32> scale 0.5 {causal} : tensor<1x4x4x8xf32>, tensor<1x4x2x8xf32>, tensor<1x4x2x8xf32>, tensor<1x4x4x8xf32>, tensor<1x4x4xf32>, tensor<1x4x4x8xf32>
  // CHECK: graph.attention %{{.*}} sinks %{{.*}} : tensor<4xf32> scale 5.000000e-01 {causal} : tensor<1x4x4x8xf32>, tensor<1x4x2x8xf32>
  %sinks = graph.constant dense<1.0> : tensor<4xf32>
  %sunk, %sunkLse = graph.attention %q, %kv, %kv sinks %sinks : tensor<4xf32> scale 0.5 {causal} : tensor<1x4x4x8xf32>, tensor<1x4x2x8xf32>, tensor<1x4x2x8xf32> -> tensor<1x4x4x8xf32>, tensor<1x4x4xf32>
  // CHECK: graph.attention_grad %{{.*}} first %{{.*}} : tensor<1x4xi32> scale
  %packedGrad:3 = graph.attention_grad %q, %kv, %kv, %packed, %packedLse, %q first %first : tensor<1x4xi32> scale 0.5 {causal} : tensor<1x4x4x8xf32>, tensor<1x4x2x8xf32>, tensor<1x4x2x8xf32>, tensor<1x4x4x8xf32>, tensor<1x4x4xf32>, tensor<1x4x4x8xf32>
  // CHECK: graph.attention %{{.*}}, %{{.*}}, %{{.*}} start %{{.*}} scale 5.000000e-01 {causal} : tensor<1x4x4x8xf32>, tensor<1x7x2x8xf32>, tensor<1x7x2x8xf32>, tensor<i32> -> tensor<1x4x4x8xf32>, tensor<1x4x4xf32>
  %start = graph.constant dense<-2> : tensor<i32>
  %others = graph.pad %kv low [0, 0, 0, 0] : tensor<1x4x2x8xf32> -> tensor<1x7x2x8xf32>
  %shared, %sharedLse = graph.attention %q, %others, %others start %start scale 0.5 {causal} : tensor<1x4x4x8xf32>, tensor<1x7x2x8xf32>, tensor<1x7x2x8xf32>, tensor<i32> -> tensor<1x4x4x8xf32>, tensor<1x4x4xf32>
  // CHECK: graph.attention_grad %{{.*}} start %{{.*}} scale
  %sharedGrad:3 = graph.attention_grad %q, %others, %others, %shared, %sharedLse, %q start %start scale 0.5 {causal} : tensor<1x4x4x8xf32>, tensor<1x7x2x8xf32>, tensor<1x7x2x8xf32>, tensor<1x4x4x8xf32>, tensor<1x4x4xf32>, tensor<1x4x4x8xf32>, tensor<i32>
  // CHECK: graph.attention_grad
  // CHECK-SAME: scale 5.000000e-01 {causal}
  %7:3 = graph.attention_grad %q, %kv, %kv, %6, %lse, %q scale 0.5 {causal} : tensor<1x4x4x8xf32>, tensor<1x4x2x8xf32>, tensor<1x4x2x8xf32>, tensor<1x4x4x8xf32>, tensor<1x4x4xf32>, tensor<1x4x4x8xf32>
  // CHECK: graph.linear_cross_entropy %{{.*}}, %{{.*}}, %{{.*}} : tensor<4x8xf32>, tensor<10x8xf32>, tensor<4xi32> -> tensor<f32>
  %8 = graph.linear_cross_entropy %x, %vocab, %targets : tensor<4x8xf32>, tensor<10x8xf32>, tensor<4xi32> -> tensor<f32>
  // CHECK: graph.linear_cross_entropy_grad %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} {ignore = 0 : i64}
  %9:3 = graph.linear_cross_entropy_grad %x, %vocab, %targets, %one {ignore = 0 : i64} : (tensor<4x8xf32>, tensor<10x8xf32>, tensor<4xi32>, tensor<f32>) -> (tensor<f32>, tensor<4x8xf32>, tensor<10x8xf32>)
  return %8 : tensor<f32>
}

// CHECK-LABEL: func @several_targets
func.func @several_targets(%x: tensor<4x8xf32>, %vocab: tensor<10x8xf32>, %targets: tensor<4x3xi32>) -> tensor<4x3xf32> {
  // CHECK: graph.linear_cross_entropy %{{.*}}, %{{.*}}, %{{.*}} : tensor<4x8xf32>, tensor<10x8xf32>, tensor<4x3xi32> -> tensor<4x3xf32>
  %0 = graph.linear_cross_entropy %x, %vocab, %targets : tensor<4x8xf32>, tensor<10x8xf32>, tensor<4x3xi32> -> tensor<4x3xf32>
  // CHECK: graph.linear_cross_entropy_grad
  %1:3 = graph.linear_cross_entropy_grad %x, %vocab, %targets, %0 : (tensor<4x8xf32>, tensor<10x8xf32>, tensor<4x3xi32>, tensor<4x3xf32>) -> (tensor<f32>, tensor<4x8xf32>, tensor<10x8xf32>)
  return %0 : tensor<4x3xf32>
}

// CHECK-LABEL: func @grouped
func.func @grouped(%x: tensor<10x4xbf16>, %w: tensor<3x4x5xbf16>, %offsets: tensor<4xi32>, %p: tensor<3x6x4xbf16>, %counts: tensor<3xi32>) {
  // CHECK: graph.grouped_matmul %{{.*}}, %{{.*}} groups %{{.*}} : (tensor<10x4xbf16>, tensor<3x4x5xbf16>, tensor<4xi32>) -> tensor<10x5xf32>
  %0 = graph.grouped_matmul %x, %w groups %offsets : (tensor<10x4xbf16>, tensor<3x4x5xbf16>, tensor<4xi32>) -> tensor<10x5xf32>
  // CHECK: graph.grouped_matmul %{{.*}}, %{{.*}} groups %{{.*}} : (tensor<3x6x4xbf16>, tensor<3x4x5xbf16>, tensor<3xi32>) -> tensor<3x6x5xbf16>
  %1 = graph.grouped_matmul %p, %w groups %counts : (tensor<3x6x4xbf16>, tensor<3x4x5xbf16>, tensor<3xi32>) -> tensor<3x6x5xbf16>
  // CHECK: graph.grouped_matmul %{{.*}}, %{{.*}} groups %{{.*}} {transposed} : (tensor<3x6x5xbf16>, tensor<3x4x5xbf16>, tensor<3xi32>) -> tensor<3x6x4xbf16>
  %2 = graph.grouped_matmul %1, %w groups %counts {transposed} : (tensor<3x6x5xbf16>, tensor<3x4x5xbf16>, tensor<3xi32>) -> tensor<3x6x4xbf16>
  // CHECK: graph.grouped_outer %{{.*}}, %{{.*}} groups %{{.*}} : (tensor<3x6x4xbf16>, tensor<3x6x5xbf16>, tensor<3xi32>) -> tensor<3x4x5xf32>
  %3 = graph.grouped_outer %p, %1 groups %counts : (tensor<3x6x4xbf16>, tensor<3x6x5xbf16>, tensor<3xi32>) -> tensor<3x4x5xf32>
  // CHECK: graph.grouped_outer %{{.*}}, %{{.*}} groups %{{.*}} : (tensor<10x4xbf16>, tensor<10x4xbf16>, tensor<4xi32>) -> tensor<3x4x4xbf16>
  %4 = graph.grouped_outer %x, %x groups %offsets : (tensor<10x4xbf16>, tensor<10x4xbf16>, tensor<4xi32>) -> tensor<3x4x4xbf16>
  return
}

// CHECK-LABEL: func @routing
func.func @routing(%s: tensor<4x8xf32>, %x: tensor<4x16xbf16>) {
  // CHECK: graph.top_k %{{.*}} : (tensor<4x8xf32>) -> tensor<4x2xi32>
  %ids = graph.top_k %s : (tensor<4x8xf32>) -> tensor<4x2xi32>
  // CHECK: graph.take_along_axis %{{.*}} at %{{.*}} : (tensor<4x8xf32>, tensor<4x2xi32>) -> tensor<4x2xf32>
  %w = graph.take_along_axis %s at %ids : (tensor<4x8xf32>, tensor<4x2xi32>) -> tensor<4x2xf32>
  // CHECK: graph.rank_in_group %{{.*}} groups 8 : (tensor<4x2xi32>) -> tensor<4x2xi32>
  %r = graph.rank_in_group %ids groups 8 : (tensor<4x2xi32>) -> tensor<4x2xi32>
  // CHECK: graph.rank_in_group %{{.*}} by %{{.*}} groups 8 : (tensor<4x2xi32>, tensor<4x2xf32>) -> tensor<4x2xi32>
  %q = graph.rank_in_group %ids by %w groups 8 : (tensor<4x2xi32>, tensor<4x2xf32>) -> tensor<4x2xi32>
  // CHECK: graph.group_rows %{{.*}} : (tensor<4x2xi32>) -> (tensor<9xi32>, tensor<4x2xi32>)
  %o, %p = graph.group_rows %ids : (tensor<4x2xi32>) -> (tensor<9xi32>, tensor<4x2xi32>)
  // CHECK: graph.dispatch_rows %{{.*}} slots %{{.*}} : (tensor<4x16xbf16>, tensor<4x2xi32>) -> tensor<8x16xbf16>
  %rows = graph.dispatch_rows %x slots %p : (tensor<4x16xbf16>, tensor<4x2xi32>) -> tensor<8x16xbf16>
  // CHECK: graph.send_rows %{{.*}} slots %{{.*}} groups %{{.*}} {always} : (tensor<8x16xbf16>, tensor<4x2xi32>, tensor<9xi32>) -> (tensor<8x16xbf16>, tensor<9xi32>)
  %sent, %theirs = graph.send_rows %rows slots %p groups %o {always} : (tensor<8x16xbf16>, tensor<4x2xi32>, tensor<9xi32>) -> (tensor<8x16xbf16>, tensor<9xi32>)
  // CHECK: graph.return_rows %{{.*}} slots %{{.*}} groups %{{.*}} : (tensor<8x16xbf16>, tensor<4x2xi32>, tensor<9xi32>) -> tensor<8x16xbf16>
  %back = graph.return_rows %sent slots %p groups %o : (tensor<8x16xbf16>, tensor<4x2xi32>, tensor<9xi32>) -> tensor<8x16xbf16>
  // CHECK: graph.combine_rows %{{.*}} slots %{{.*}} weights %{{.*}} : (tensor<8x16xbf16>, tensor<4x2xi32>, tensor<4x2xf32>) -> tensor<4x16xbf16>
  %y = graph.combine_rows %rows slots %p weights %w : (tensor<8x16xbf16>, tensor<4x2xi32>, tensor<4x2xf32>) -> tensor<4x16xbf16>
  return
}

// CHECK-LABEL: func @cached
func.func @cached(%q: tensor<2x1x4x8xbf16>, %k: tensor<5x16x2x8xbf16>, %t: tensor<2x3xi32>, %l: tensor<2xi32>, %p: tensor<2x1xi32>, %u: tensor<2x1x16xbf16>) {
  // CHECK: graph.rope %{{.*}} at %{{.*}} {{{.*}}} : tensor<2x1x4x8xbf16>, tensor<2x1xi32>
  %0 = graph.rope %q at %p {frequencies = array<f64: 1.0, 0.5, 0.25, 0.125>} : tensor<2x1x4x8xbf16>, tensor<2x1xi32>
  // CHECK: graph.paged_attention %{{.*}}, %{{.*}}, %{{.*}} pages %{{.*}} starts %{{.*}} lengths %{{.*}} scale 5.000000e-01 {window = 7 : i64} : tensor<2x1x4x8xbf16>, tensor<5x16x2x8xbf16>, tensor<2x3xi32>, tensor<2xi32>
  %1 = graph.paged_attention %0, %k, %k pages %t starts %l lengths %l scale 0.5 {window = 7 : i64} : tensor<2x1x4x8xbf16>, tensor<5x16x2x8xbf16>, tensor<2x3xi32>, tensor<2xi32>
  %flat = graph.reshape %k : tensor<5x16x2x8xbf16> -> tensor<80x16xbf16>
  // CHECK: graph.scatter_rows %{{.*}} at %{{.*}} into %{{.*}} : tensor<2x1x16xbf16>, tensor<2x1xi32>, tensor<80x16xbf16>
  %2 = graph.scatter_rows %u at %p into %flat : tensor<2x1x16xbf16>, tensor<2x1xi32>, tensor<80x16xbf16>
  return
}

// CHECK-LABEL: func @structure
// CHECK-SAME: tensor<4xf32> {graph.decay, graph.role = #graph<role parameter>, graph.state = "wte.weight"}
// CHECK-SAME: -> (tensor<4xf32> {graph.output = "loss"})
// CHECK-SAME: attributes {graph.block}
func.func @structure(%x: tensor<4xf32> {graph.decay, graph.role = #graph<role parameter>, graph.state = "wte.weight"})
    -> (tensor<4xf32> {graph.output = "loss"}) attributes {graph.block} {
  // CHECK: graph.loop 3 (%{{.*}}, %[[ACC:.*]] = %{{.*}}) : (tensor<4xf32>) {
  // CHECK-NEXT: graph.add %[[ACC]], %{{.*}}
  // CHECK-NEXT: graph.yield %{{.*}} : tensor<4xf32>
  %0 = graph.loop 3 (%i, %acc = %x) : (tensor<4xf32>) {
    %s = graph.add %acc, %x : tensor<4xf32>
    graph.yield %s : tensor<4xf32>
  }
  // CHECK: graph.loop 2 (%{{.*}}) : () {
  graph.loop 2 (%i) : () {
    graph.yield
  }
  // CHECK: graph.cluster elementwise "twice"(%{{.*}}, %{{.*}}) attributes {accumulates = array<i64: 0, 0>} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %1 = graph.cluster elementwise "twice" (%0, %x) attributes {accumulates = array<i64: 0, 0>} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32> {
  ^bb0(%a: tensor<4xf32>, %b: tensor<4xf32>):
    %s = graph.add %a, %b : tensor<4xf32>
    graph.yield %s : tensor<4xf32>
  }
  return %1 : tensor<4xf32>
}

// CHECK-LABEL: func @quantized
func.func @quantized(%q: tensor<4x16x16xi32> {graph.role = #graph<role parameter>, graph.state = "w.values", graph.quantized = {source = "w", part = "values", bits = 4, group = 32, shape = array<i64: 64, 128>}}, %s: tensor<4x4x16xf16>, %t: tensor<4x2x16xf16>, %u: tensor<4x3x16xi32>, %x: tensor<2x128xbf16>, %r: tensor<5x8x2x64xbf16>) -> tensor<2x64xf32> {
  // CHECK: %{{.*}}, %{{.*}} = graph.quantize_rows %{{.*}} : tensor<5x8x2x64xbf16> -> tensor<5x8x2x64xi8>, tensor<5x8x2x1xf32>
  %rows, %of = graph.quantize_rows %r : tensor<5x8x2x64xbf16> -> tensor<5x8x2x64xi8>, tensor<5x8x2x1xf32>
  // CHECK: graph.dequantize_rows %{{.*}}, %{{.*}} : tensor<5x8x2x64xi8>, tensor<5x8x2x1xf32> -> tensor<5x8x2x64xbf16>
  %back = graph.dequantize_rows %rows, %of : tensor<5x8x2x64xi8>, tensor<5x8x2x1xf32> -> tensor<5x8x2x64xbf16>
  // CHECK: %[[W:.*]] = graph.dequantize %{{.*}}, %{{.*}} bits 4 group 32 transposed : tensor<4x16x16xi32>, tensor<4x4x16xf16> -> tensor<128x64xbf16>
  %w = graph.dequantize %q, %s bits 4 group 32 transposed : tensor<4x16x16xi32>, tensor<4x4x16xf16> -> tensor<128x64xbf16>
  // CHECK: graph.dequantize %{{.*}}, %{{.*}} bits 4 group 64 floats : tensor<4x16x16xi32>, tensor<4x3x16xi32> -> tensor<64x128xf32>
  %n = graph.dequantize %q, %u bits 4 group 64 floats : tensor<4x16x16xi32>, tensor<4x3x16xi32> -> tensor<64x128xf32>
  // CHECK: graph.dequantize %{{.*}}, %{{.*}} bits 8 group 32 floats transposed : tensor<4x16x16xi32>, tensor<4x2x16xf16> -> tensor<64x64xf32>
  %f = graph.dequantize %q, %t bits 8 group 32 floats transposed : tensor<4x16x16xi32>, tensor<4x2x16xf16> -> tensor<64x64xf32>
  // CHECK: graph.einsum "bk,kn->bn" %{{.*}}, %[[W]]
  %y = graph.einsum "bk,kn->bn" %x, %w : (tensor<2x128xbf16>, tensor<128x64xbf16>) -> tensor<2x64xf32>
  return %y : tensor<2x64xf32>
}

// CHECK-LABEL: func @super_blocks
// CHECK-SAME: graph.quantized = {bits = 5 : i64, group = 256 : i64, part = "values", shape = array<i64: 64, 512>, source = "w", super_blocks}
func.func @super_blocks(%q: tensor<4x80x16xi32> {graph.role = #graph<role parameter>, graph.state = "w.values", graph.quantized = {source = "w", part = "values", bits = 5, group = 256, shape = array<i64: 64, 512>, super_blocks}}, %s: tensor<4x10x16xi32>) -> tensor<64x512xf32> {
  // CHECK: graph.dequantize %{{.*}}, %{{.*}} bits 5 group 256 super_blocks : tensor<4x80x16xi32>, tensor<4x10x16xi32> -> tensor<64x512xf32>
  %w = graph.dequantize %q, %s bits 5 group 256 super_blocks : tensor<4x80x16xi32>, tensor<4x10x16xi32> -> tensor<64x512xf32>
  // CHECK: graph.dequantize %{{.*}}, %{{.*}} bits 5 group 256 super_blocks transposed : tensor<4x80x16xi32>, tensor<4x10x16xi32> -> tensor<512x64xbf16>
  %t = graph.dequantize %q, %s bits 5 group 256 super_blocks transposed : tensor<4x80x16xi32>, tensor<4x10x16xi32> -> tensor<512x64xbf16>
  return %w : tensor<64x512xf32>
}

// CHECK-LABEL: func @quantized_stack
func.func @quantized_stack(%q: tensor<4x16x16xi32> {graph.role = #graph<role parameter>, graph.state = "w.*.values", graph.quantized = {source = "w.*", part = "values", bits = 4, group = 32, shape = array<i64: 2, 32, 128>}}, %s: tensor<4x4x16xf16>, %x: tensor<6x128xbf16>, %g: tensor<3xi32>) -> tensor<6x32xf32> {
  // CHECK: graph.dequantize %{{.*}}, %{{.*}} bits 4 group 32 : tensor<4x16x16xi32>, tensor<4x4x16xf16> -> tensor<2x32x128xbf16>
  %w = graph.dequantize %q, %s bits 4 group 32 : tensor<4x16x16xi32>, tensor<4x4x16xf16> -> tensor<2x32x128xbf16>
  %y = graph.grouped_matmul %x, %w groups %g {transposed} : (tensor<6x128xbf16>, tensor<2x32x128xbf16>, tensor<3xi32>) -> tensor<6x32xf32>
  return %y : tensor<6x32xf32>
}

// CHECK-LABEL: func.func @sample
func.func @sample(%l: tensor<2x96xf32>, %a: tensor<2x3xi32>, %t: tensor<2x8xi32>, %c: tensor<2x8x4xf32>, %o: tensor<2x2xf32>, %n: tensor<2x4xi32>) -> tensor<2xi32> {
  // CHECK: graph.sample %{{.*}} allowed %{{.*}} change %{{.*}} by %{{.*}} options %{{.*}} limits %{{.*}} : tensor<2x96xf32>, tensor<2x3xi32>, tensor<2x8xi32>, tensor<2x8x4xf32>, tensor<2x2xf32>, tensor<2x4xi32> -> tensor<2xi32>
  %r = graph.sample %l allowed %a change %t by %c options %o limits %n : tensor<2x96xf32>, tensor<2x3xi32>, tensor<2x8xi32>, tensor<2x8x4xf32>, tensor<2x2xf32>, tensor<2x4xi32> -> tensor<2xi32>
  return %r : tensor<2xi32>
}

// CHECK-LABEL: func.func @discounted_sum
func.func @discounted_sum(%x: tensor<2x9xf32>, %s: tensor<2x9xi32>) -> tensor<2x9xf32> {
  // CHECK: graph.discounted_sum %{{.*}}, %{{.*}} discount 7.500000e-01 : tensor<2x9xf32>, tensor<2x9xi32>
  %r = graph.discounted_sum %x, %s discount 0.75 : tensor<2x9xf32>, tensor<2x9xi32>
  return %r : tensor<2x9xf32>
}

// CHECK-LABEL: func.func @segment_sum
func.func @segment_sum(%x: tensor<2x9xf32>) -> tensor<2x9x9xf32> {
  // CHECK: graph.segment_sum %{{.*}} : tensor<2x9xf32> -> tensor<2x9x9xf32>
  %r = graph.segment_sum %x : tensor<2x9xf32> -> tensor<2x9x9xf32>
  return %r : tensor<2x9x9xf32>
}

// CHECK-LABEL: func.func @state_space_scan
func.func @state_space_scan(%x: tensor<2x9x4x8xf32>, %d: tensor<2x9x4xf32>, %a: tensor<4xf32>, %b: tensor<2x9x2x16xf32>, %f: tensor<2x9xi32>, %n: tensor<2xi32>, %s: tensor<2x4x8x16xf32>) -> tensor<2x9x4x8xf32> {
  // CHECK: graph.state_space_scan %{{.*}} step %{{.*}} rate %{{.*}} write %{{.*}} read %{{.*}} skip %{{.*}} bias %{{.*}} first %{{.*}} chunk 4 {most = 1.000000e-01 : f64} :
  %y, %t = graph.state_space_scan %x step %d rate %a write %b read %b skip %a bias %a first %f chunk 4 {most = 0.1 : f64} : (tensor<2x9x4x8xf32>, tensor<2x9x4xf32>, tensor<4xf32>, tensor<2x9x2x16xf32>, tensor<2x9x2x16xf32>, tensor<4xf32>, tensor<4xf32>, tensor<2x9xi32>) -> (tensor<2x9x4x8xf32>, tensor<2x4x8x16xf32>)
  // CHECK: graph.state_space_scan {{.*}} counts %{{.*}} from %{{.*}} chunk 64 :
  %z, %u = graph.state_space_scan %y step %d rate %a write %b read %b skip %a bias %a counts %n from %s chunk 64 : (tensor<2x9x4x8xf32>, tensor<2x9x4xf32>, tensor<4xf32>, tensor<2x9x2x16xf32>, tensor<2x9x2x16xf32>, tensor<4xf32>, tensor<4xf32>, tensor<2xi32>, tensor<2x4x8x16xf32>) -> (tensor<2x9x4x8xf32>, tensor<2x4x8x16xf32>)
  return %z : tensor<2x9x4x8xf32>
}

// CHECK-LABEL: func @train_step
// CHECK-SAME: {graph.layer = #graph.layer<3>
// CHECK-SAME: graph.program = #graph.program<train_step>
func.func @train_step(%w: tensor<4xf32> {graph.layer = #graph.layer<3>, graph.state = "w"})
    attributes {graph.program = #graph.program<train_step>} {
  // CHECK: graph.layer = #graph.layer<3, backward>
  call @layer.backward(%w) {graph.layer = #graph.layer<3, backward>} : (tensor<4xf32>) -> ()
  return
}
func.func private @layer.backward(tensor<4xf32>)
