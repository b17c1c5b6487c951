// RUN: tessera-opt %s --build-train-step | FileCheck %s --check-prefixes=CHECK,ADAMW,ONE
// RUN: tessera-opt %s --build-train-step="accumulate=4 schedule=linear warmup=3" | FileCheck %s --check-prefixes=CHECK,ADAMW,FOUR
// RUN: tessera-opt %s --build-train-step="optimizer=sgd schedule=constant" | FileCheck %s --check-prefixes=CHECK,SGD,ONE
// RUN: tessera-opt %s --build-train-step="optimizer=sgd momentum=0.9" | FileCheck %s --check-prefixes=CHECK,MOMENTUM,ONE

// ADAMW-LABEL: func @init
// ADAMW-SAME:  tensor<8xf32> {graph.layer = #graph.layer<3>, graph.role = #graph<role parameter>, graph.state = "g"}
// ADAMW-SAME:  {graph.role = #graph<role optimizer>, graph.state = "w.exp_avg"}
// ADAMW-SAME:  {graph.layer = #graph.layer<3>, graph.role = #graph<role optimizer>, graph.state = "g.exp_avg"}
// ADAMW-SAME:  {graph.role = #graph<role optimizer>, graph.state = "w.exp_avg_sq"}
// ADAMW-SAME:  {graph.layer = #graph.layer<3>, graph.role = #graph<role optimizer>, graph.state = "g.exp_avg_sq"}
// ADAMW-SAME:  tensor<1xi64> {graph.role = #graph<role counter>, graph.state = "step"}
// ADAMW-SAME:  tensor<16xf32> {graph.role = #graph<role counter>, graph.state = "hyper"}
// ONE:         dense<[3.000000e-04, 0.899999976, 0.949999988, 9.99999993E-9, 1.000000e-01, 1.000000e+00, {{[09].*}}, 0.000000e+00, 1.000000e+03, 1.000000e-01, 0.0
// FOUR:        dense<[3.000000e-04, 0.899999976, 0.949999988, 9.99999993E-9, 1.000000e-01, 1.000000e+00, 0.000000e+00, 3.000000e+00, 1.000000e+03,

// CHECK-NOT:   @gradients

// CHECK-LABEL:   func @train_step
// CHECK-SAME:    (%[[W:.*]]: tensor<8x8xf32> {graph.decay, graph.role = #graph<role parameter>, graph.state = "w"}, %[[G:.*]]: tensor<8xf32> {graph.layer = #graph.layer<3>, graph.role = #graph<role parameter>, graph.state = "g"}
// ADAMW-SAME:    %[[WM:.*]]: tensor<8x8xf32> {graph.role = #graph<role optimizer>, graph.state = "w.exp_avg"}, %[[GM:[^ ]*]]: tensor<8xf32> {{[^%]*}} %[[WV:[^ ]*]]: tensor<8x8xf32> {{[^%]*}} %[[GV:[^ ]*]]: tensor<8xf32>
// MOMENTUM-SAME: %[[WM:.*]]: tensor<8x8xf32> {graph.role = #graph<role optimizer>, graph.state = "w.momentum_buffer"}, %[[GM:[^ ]*]]: tensor<8xf32>
// SGD-NOT:       role optimizer
// CHECK-SAME:    %[[STEP:[^ ]*]]: tensor<1xi64> {graph.role = #graph<role counter>, graph.state = "step"}, %[[HYPER:[^ ]*]]: tensor<16xf32>
// ONE-SAME:      %[[TOKENS:[^ ]*]]: tensor<1x2x4xi32> {graph.input = "tokens"}, %[[TARGETS:[^ ]*]]: tensor<1x2x4xi32> {graph.input = "targets"}, %[[SEED:[^ ]*]]: tensor<1xi64> {graph.input = "seed"}
// FOUR-SAME:     %[[TOKENS:[^ ]*]]: tensor<4x2x4xi32> {graph.input = "tokens"}, %[[TARGETS:[^ ]*]]: tensor<4x2x4xi32> {graph.input = "targets"}, %[[SEED:[^ ]*]]: tensor<1xi64> {graph.input = "seed"}
// CHECK-SAME:    tensor<f32> {graph.output = "loss"}, tensor<f32> {graph.output = "grad_norm"}, tensor<f32> {graph.output = "lr"}, tensor<i64> {graph.output = "tokens"}
// CHECK-SAME:    attributes {graph.program = #graph.program<train_step>}

// The count over all microbatches, and 1/N or 0.
// CHECK:      %[[MASK:.*]] = graph.compare %[[TARGETS]] ne
// CHECK:      %[[ONES:.*]] = graph.convert %[[MASK]]
// CHECK:      %[[COUNT:.*]] = graph.reduce %[[ONES]] sum dims [0, 1, 2] : {{.*}} -> tensor<i64>
// CHECK:      %[[N:.*]] = graph.convert %[[COUNT]] : tensor<i64> -> tensor<f32>
// CHECK:      %[[D:.*]] = graph.max %[[N]]
// CHECK:      %[[INVERSE:.*]] = graph.div %{{.*}}, %[[D]]
// CHECK:      %[[CT:.*]] = graph.select %{{.*}}, %[[INVERSE]]

// One microbatch: no loop, offset 0.
// ONE-NOT:    graph.loop
// ONE:        graph.constant dense<0> : tensor<i64>
// ONE:        graph.reshape %[[TOKENS]] : tensor<1x2x4xi32> -> tensor<2x4xi32>
// ONE:        graph.convert %[[W]] : tensor<8x8xf32> -> tensor<8x8xbf16>

// Several: the weight's copy before the loop, sums of loss and gradients carried, the offset of sequence 2·i.
// FOUR:       graph.convert %[[W]] : tensor<8x8xf32> -> tensor<8x8xbf16>
// FOUR:       %[[SUMS:.*]]:3 = graph.loop 4 (%[[I:.*]], %[[L:.*]] = %{{.*}}, %[[SW:.*]] = %{{.*}}, %[[SG:.*]] = %{{.*}}) : (tensor<f32>, tensor<8x8xf32>, tensor<8xf32>)
// FOUR-NOT:     graph.convert %[[W]]
// FOUR:         graph.mul %{{.*}}, %{{.*}} : tensor<i64>
// FOUR:         graph.dynamic_slice %[[TOKENS]][%[[I]]]
// FOUR:         graph.dynamic_slice %[[TARGETS]][%[[I]]]
// FOUR:         %[[NL:.*]] = graph.add %[[L]],
// FOUR:         %[[NW:.*]] = graph.add %[[SW]],
// FOUR:         %[[NG:.*]] = graph.add %[[SG]],
// FOUR:         graph.yield %[[NL]], %[[NW]], %[[NG]]

// CHECK:      %[[LOSS:.*]] = graph.div %{{.*}}, %[[D]]
// CHECK:      %[[NORM:.*]] = graph.sqrt
// CHECK:      graph.slice %[[HYPER]] [5]

// ADAMW:      %[[NEWW:.*]]:3 = call @adamw.decay.8x8(%[[W]], %{{[^,]*}}, %[[WM]], %[[WV]],
// ADAMW:      %[[NEWG:.*]]:3 = call @adamw.8(%[[G]], %{{[^,]*}}, %[[GM]], %[[GV]],
// SGD:        %[[NEWW:.*]] = call @sgd.decay.8x8(%[[W]],
// SGD:        %[[NEWG:.*]] = call @sgd.8(%[[G]],
// MOMENTUM:   %[[NEWW:.*]]:2 = call @sgd.decay.8x8(%[[W]], %{{[^,]*}}, %[[WM]],
// MOMENTUM:   %[[NEWG:.*]]:2 = call @sgd.8(%[[G]], %{{[^,]*}}, %[[GM]],
// CHECK:      %[[NEXT:.*]] = graph.add %[[STEP]]
// ADAMW:      return %[[NEWW]]#0, %[[NEWG]]#0, %[[NEWW]]#1, %[[NEWG]]#1, %[[NEWW]]#2, %[[NEWG]]#2, %[[NEXT]], %[[LOSS]], %[[NORM]], %{{.*}}, %[[COUNT]]
// SGD:        return %[[NEWW]], %[[NEWG]], %[[NEXT]], %[[LOSS]], %[[NORM]], %{{.*}}, %[[COUNT]]
// MOMENTUM:   return %[[NEWW]]#0, %[[NEWG]]#0, %[[NEWW]]#1, %[[NEWG]]#1, %[[NEXT]], %[[LOSS]], %[[NORM]], %{{.*}}, %[[COUNT]]

// The update of a kind of parameter is a block; without decay the weight is not shrunk.
// ADAMW-LABEL: func private @adamw.decay.8x8
// ADAMW-SAME:  attributes {graph.block}
// ADAMW:       graph.mul %arg0,
// ADAMW-LABEL: func private @adamw.8(
// ADAMW-NOT:   graph.mul %arg0,

func.func @init(%seed: tensor<1xi64> {graph.input = "seed"}) -> (tensor<8x8xf32> {graph.state = "w", graph.role = #graph<role parameter>, graph.decay},
                                                              tensor<8xf32> {graph.state = "g", graph.role = #graph<role parameter>, graph.layer = #graph.layer<3>}) attributes {graph.program = #graph.program<init>} {
  %w = graph.constant dense<0.5> : tensor<8x8xf32>
  %g = graph.constant dense<1.0> : tensor<8xf32>
  return %w, %g : tensor<8x8xf32>, tensor<8xf32>
}

func.func @gradients(%w: tensor<8x8xf32> {graph.state = "w", graph.role = #graph<role parameter>, graph.decay},
                     %g: tensor<8xf32> {graph.state = "g", graph.role = #graph<role parameter>, graph.layer = #graph.layer<3>},
                     %tokens: tensor<2x4xi32> {graph.input = "tokens"}, %targets: tensor<2x4xi32> {graph.input = "targets"},
                     %seed: tensor<i64> {graph.input = "seed"}, %step: tensor<i64> {graph.input = "step"}, %offset: tensor<i64> {graph.input = "offset"},
                     %cotangent: tensor<f32> {graph.input = "cotangent"}) -> (tensor<f32>, tensor<8x8xf32>, tensor<8xf32>) attributes {graph.program = #graph.program<gradients>} {
  %w16 = graph.convert %w : tensor<8x8xf32> -> tensor<8x8xbf16>
  %e = graph.embedding %w16, %tokens : (tensor<8x8xbf16>, tensor<2x4xi32>) -> tensor<2x4x8xbf16>
  %l0 = graph.reduce %e sum dims [0, 1, 2] : tensor<2x4x8xbf16> -> tensor<bf16>
  %l = graph.convert %l0 : tensor<bf16> -> tensor<f32>
  %c = graph.broadcast %cotangent dims [] : tensor<f32> -> tensor<2x4x8xf32>
  %zero = graph.constant dense<0.0> : tensor<8x8xf32>
  %dw = graph.scatter_add %c at %tokens onto %zero : tensor<2x4x8xf32>, tensor<2x4xi32>, tensor<8x8xf32>
  %dg = graph.broadcast %cotangent dims [] : tensor<f32> -> tensor<8xf32>
  return %l, %dw, %dg : tensor<f32>, tensor<8x8xf32>, tensor<8xf32>
}
