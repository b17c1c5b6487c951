// Attention with the tokens of sequences cut: keys and values go around, or are gathered where shares differ.
// RUN: tessera-opt %s --partition-to-local=device=0 --canonicalize --cse --split-input-file | FileCheck %s

// Two rounds: first the device's own keys, then those of the other, which are earlier than its queries or later.
// CHECK-LABEL: func.func @ring
// CHECK-SAME: (%[[Q:.*]]: tensor<1x4x2x8xbf16> {{.*}}, %[[K:.*]]: tensor<1x4x1x8xbf16> {{.*}}, %[[V:.*]]: tensor<1x4x1x8xbf16> {{.*}}, %[[OFFSETS:.*]]: tensor<1xi32>
// CHECK-DAG: %[[BEFORE:.*]] = graph.constant dense<4> : tensor<i32>
// CHECK-DAG: %[[BEHIND:.*]] = graph.constant dense<-4> : tensor<i32>
// CHECK: %[[OWN:.*]], %[[OWN_LSE:.*]] = graph.attention %[[Q]], %[[K]], %[[V]] scale 5.000000e-01 {causal} : {{.*}} -> tensor<1x4x2x8xbf16>, tensor<1x2x4xf32>
// CHECK: %[[K1:.*]] = dist.permute %[[K]] targets [1, 0] over @mesh [#dist.axis_ref<"context">] : tensor<1x4x1x8xbf16> -> tensor<1x4x1x8xbf16>
// CHECK: %[[V1:.*]] = dist.permute %[[V]]
// CHECK: %[[IS:.*]] = graph.compare %{{.*}} ge %[[BEFORE]]
// CHECK: %[[START:.*]] = graph.select %[[IS]], %[[BEFORE]], %[[BEHIND]] : tensor<i1>, tensor<i32>
// CHECK: %[[OTHER:.*]], %[[OTHER_LSE:.*]] = graph.attention %[[Q]], %[[K1]], %[[V1]] start %[[START]] scale 5.000000e-01 {causal}
// CHECK: %[[TOP:.*]] = graph.max %[[OWN_LSE]], %[[OTHER_LSE]]
// CHECK-NOT: dist.
// CHECK: return
dist.mesh @mesh [#dist.axis<"context" = 2>]
func.func @ring(%q: tensor<1x8x2x8xbf16> {dist.sharding = #dist.sharding<@mesh, [{}, {"context"}, {}, {}]>}, %k: tensor<1x8x1x8xbf16> {dist.sharding = #dist.sharding<@mesh, [{}, {"context"}, {}, {}]>}, %v: tensor<1x8x1x8xbf16> {dist.sharding = #dist.sharding<@mesh, [{}, {"context"}, {}, {}]>}) -> (tensor<1x8x2x8xbf16> {dist.sharding = #dist.sharding<@mesh, [{}, {"context"}, {}, {}]>}) {
  %y:2 = graph.attention %q, %k, %v scale 0.5 {causal, dist.shardings = [#dist.sharding<@mesh, [{}, {"context"}, {}, {}]>, #dist.sharding<@mesh, [{}, {}, {"context"}]>]} : tensor<1x8x2x8xbf16>, tensor<1x8x1x8xbf16>, tensor<1x8x1x8xbf16> -> tensor<1x8x2x8xbf16>, tensor<1x2x8xf32>
  return %y#0 : tensor<1x8x2x8xbf16>
}

// -----

// Every other token: query t of the first device sees the keys of the second up to t - 1, the other way round up to t.
// CHECK-LABEL: func.func @stripes
// CHECK-DAG: %[[SAME:.*]] = graph.constant dense<0> : tensor<i32>
// CHECK-DAG: %[[LESS:.*]] = graph.constant dense<-1> : tensor<i32>
// CHECK: graph.attention %{{.*}} scale 5.000000e-01 {causal} : tensor<1x4x1x8xf32>
// CHECK: %[[START:.*]] = graph.select %{{.*}}, %[[SAME]], %[[LESS]] : tensor<i1>, tensor<i32>
// CHECK: graph.attention %{{.*}} start %[[START]] scale 5.000000e-01 {causal} : tensor<1x4x1x8xf32>
// CHECK: return
dist.mesh @mesh [#dist.axis<"context" = 2>]
func.func @stripes(%q: tensor<1x8x1x8xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {4, 2:"context"}, {}, {}]>}) -> (tensor<1x8x1x8xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {4, 2:"context"}, {}, {}]>}) {
  %y:2 = graph.attention %q, %q, %q scale 0.5 {causal, dist.shardings = [#dist.sharding<@mesh, [{}, {4, 2:"context"}, {}, {}]>, #dist.sharding<@mesh, [{}, {}, {4, 2:"context"}]>]} : tensor<1x8x1x8xf32>, tensor<1x8x1x8xf32>, tensor<1x8x1x8xf32> -> tensor<1x8x1x8xf32>, tensor<1x1x8xf32>
  return %y#0 : tensor<1x8x1x8xf32>
}

// -----

// With a window the distance of two tokens counts, which stripes do not have: all tokens come together.
// CHECK-LABEL: func.func @window_of_stripes
// CHECK: dist.all_gather
// CHECK: graph.attention %{{.*}} scale 5.000000e-01 {causal, window = 3 : i64} : tensor<1x8x1x8xf32>
// CHECK: return
dist.mesh @mesh [#dist.axis<"context" = 2>]
func.func @window_of_stripes(%q: tensor<1x8x1x8xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {4, 2:"context"}, {}, {}]>}) -> (tensor<1x8x1x8xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {4, 2:"context"}, {}, {}]>}) {
  %y:2 = graph.attention %q, %q, %q scale 0.5 {causal, window = 3 : i64, dist.shardings = [#dist.sharding<@mesh, [{}, {4, 2:"context"}, {}, {}]>, #dist.sharding<@mesh, [{}, {}, {4, 2:"context"}]>]} : tensor<1x8x1x8xf32>, tensor<1x8x1x8xf32>, tensor<1x8x1x8xf32> -> tensor<1x8x1x8xf32>, tensor<1x1x8xf32>
  return %y#0 : tensor<1x8x1x8xf32>
}

// -----

// Gradients of keys and values travel in f32 with what they are of, and in the end home.
// CHECK-LABEL: func.func @ring_grad
// CHECK: graph.attention_grad %{{.*}} scale 5.000000e-01 {causal}
// CHECK: dist.permute %{{.*}} : tensor<1x4x1x8xbf16> -> tensor<1x4x1x8xbf16>
// CHECK: dist.permute %{{.*}} : tensor<1x4x1x8xbf16> -> tensor<1x4x1x8xbf16>
// CHECK: dist.permute %{{.*}} : tensor<1x4x1x8xf32> -> tensor<1x4x1x8xf32>
// CHECK: dist.permute %{{.*}} : tensor<1x4x1x8xf32> -> tensor<1x4x1x8xf32>
// CHECK: graph.attention_grad %{{.*}} start %{{.*}} scale 5.000000e-01 {causal}
// CHECK: dist.permute %{{.*}} targets [1, 0] {{.*}} : tensor<1x4x1x8xf32> -> tensor<1x4x1x8xf32>
// CHECK: dist.permute %{{.*}} targets [1, 0] {{.*}} : tensor<1x4x1x8xf32> -> tensor<1x4x1x8xf32>
// CHECK-NOT: dist.
// CHECK: return
dist.mesh @mesh [#dist.axis<"context" = 2>]
func.func @ring_grad(%q: tensor<1x8x2x8xbf16> {dist.sharding = #dist.sharding<@mesh, [{}, {"context"}, {}, {}]>}, %k: tensor<1x8x1x8xbf16> {dist.sharding = #dist.sharding<@mesh, [{}, {"context"}, {}, {}]>}, %lse: tensor<1x2x8xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {}, {"context"}]>}) -> (tensor<1x8x2x8xbf16> {dist.sharding = #dist.sharding<@mesh, [{}, {"context"}, {}, {}]>}, tensor<1x8x1x8xbf16> {dist.sharding = #dist.sharding<@mesh, [{}, {"context"}, {}, {}]>}, tensor<1x8x1x8xbf16> {dist.sharding = #dist.sharding<@mesh, [{}, {"context"}, {}, {}]>}) {
  %g:3 = graph.attention_grad %q, %k, %k, %q, %lse, %q scale 0.5 {causal, dist.shardings = [#dist.sharding<@mesh, [{}, {"context"}, {}, {}]>, #dist.sharding<@mesh, [{}, {"context"}, {}, {}]>, #dist.sharding<@mesh, [{}, {"context"}, {}, {}]>]} : tensor<1x8x2x8xbf16>, tensor<1x8x1x8xbf16>, tensor<1x8x1x8xbf16>, tensor<1x8x2x8xbf16>, tensor<1x2x8xf32>, tensor<1x8x2x8xbf16>
  return %g#0, %g#1, %g#2 : tensor<1x8x2x8xbf16>, tensor<1x8x1x8xbf16>, tensor<1x8x1x8xbf16>
}

// -----

// Keys that nobody's window reaches do not go around: of three devices with two tokens each, two rounds.
// CHECK-LABEL: func.func @window
// CHECK-COUNT-2: graph.attention
// CHECK-NOT: graph.attention
// CHECK: return
dist.mesh @mesh [#dist.axis<"context" = 3>]
func.func @window(%q: tensor<1x6x1x8xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {"context"}, {}, {}]>}) -> (tensor<1x6x1x8xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {"context"}, {}, {}]>}) {
  %y:2 = graph.attention %q, %q, %q scale 0.5 {causal, window = 3 : i64, dist.shardings = [#dist.sharding<@mesh, [{}, {"context"}, {}, {}]>, #dist.sharding<@mesh, [{}, {}, {"context"}]>]} : tensor<1x6x1x8xf32>, tensor<1x6x1x8xf32>, tensor<1x6x1x8xf32> -> tensor<1x6x1x8xf32>, tensor<1x1x6xf32>
  return %y#0 : tensor<1x6x1x8xf32>
}

// -----

// CHECK-LABEL: func.func @gathered
// CHECK-SAME: (%[[Q:.*]]: tensor<1x4x1x8xf32>
// CHECK: dist.all_gather %{{.*}} dim 0 shares [4, 3]
// CHECK: graph.attention %[[Q]], %{{.*}}, %{{.*}} start %{{.*}} scale 5.000000e-01 {causal} : tensor<1x4x1x8xf32>, tensor<1x7x1x8xf32>, tensor<1x7x1x8xf32>, tensor<i32> -> tensor<1x4x1x8xf32>, tensor<1x1x4xf32>
// CHECK-NOT: dist.
// CHECK: return
dist.mesh @mesh [#dist.axis<"context" = 2>]
func.func @gathered(%q: tensor<1x7x1x8xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {"context"}, {}, {}]>}) -> (tensor<1x7x1x8xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {"context"}, {}, {}]>}) {
  %y:2 = graph.attention %q, %q, %q scale 0.5 {causal, dist.shardings = [#dist.sharding<@mesh, [{}, {"context"}, {}, {}]>, #dist.sharding<@mesh, [{}, {}, {"context"}]>]} : tensor<1x7x1x8xf32>, tensor<1x7x1x8xf32>, tensor<1x7x1x8xf32> -> tensor<1x7x1x8xf32>, tensor<1x1x7xf32>
  return %y#0 : tensor<1x7x1x8xf32>
}

// -----

// Positions are those of the tokens: from where a share begins, or every other number.
// CHECK-LABEL: func.func @rope
// CHECK: %[[IOTA:.*]] = graph.iota dim 0 : tensor<4xi32>
// CHECK: %[[AT:.*]] = graph.add %[[IOTA]], %{{.*}} : tensor<4xi32>
// CHECK: %[[ALL:.*]] = graph.broadcast %[[AT]] dims [1] : tensor<4xi32> -> tensor<2x4xi32>
// CHECK: graph.rope %{{.*}} at %[[ALL]]
dist.mesh @mesh [#dist.axis<"context" = 2>]
func.func @rope(%x: tensor<2x8x1x4xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {"context"}, {}, {}]>}) -> (tensor<2x8x1x4xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {"context"}, {}, {}]>}) {
  %y = graph.rope %x {frequencies = array<f64: 1.0, 0.5>, dist.shardings = [#dist.sharding<@mesh, [{}, {"context"}, {}, {}]>]} : tensor<2x8x1x4xf32>
  return %y : tensor<2x8x1x4xf32>
}

// -----

// CHECK-LABEL: func.func @rope_of_stripes
// CHECK-DAG: %[[TWO:.*]] = graph.constant dense<2> : tensor<4x1xi32>
// CHECK: graph.mul %{{.*}}, %[[TWO]] : tensor<4x1xi32>
// CHECK: graph.rope %{{.*}} at %{{.*}}
dist.mesh @mesh [#dist.axis<"context" = 2>]
func.func @rope_of_stripes(%x: tensor<2x8x1x4xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {4, 2:"context"}, {}, {}]>}) -> (tensor<2x8x1x4xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {4, 2:"context"}, {}, {}]>}) {
  %y = graph.rope %x {frequencies = array<f64: 1.0, 0.5>, dist.shardings = [#dist.sharding<@mesh, [{}, {4, 2:"context"}, {}, {}]>]} : tensor<2x8x1x4xf32>
  return %y : tensor<2x8x1x4xf32>
}
