// RUN: tessera-opt %s --split-input-file --simplify-gradient-sums | FileCheck %s

// CHECK-LABEL: func @scatter_onto_the_sum
// CHECK-SAME:  (%[[SUM:.*]]: tensor<16x4xf32>, %[[IDS:.*]]: tensor<3xi32>, %[[ROWS:.*]]: tensor<3x4xbf16>)
// CHECK-NEXT:  %[[R:.*]] = graph.scatter_add %[[ROWS]] at %[[IDS]] onto %[[SUM]]
// CHECK-NEXT:  return %[[R]]
func.func @scatter_onto_the_sum(%sum: tensor<16x4xf32>, %ids: tensor<3xi32>, %rows: tensor<3x4xbf16>) -> tensor<16x4xf32> {
  %zero = graph.constant dense<0.0> : tensor<16x4xf32>
  %d = graph.scatter_add %rows at %ids onto %zero : tensor<3x4xbf16>, tensor<3xi32>, tensor<16x4xf32>
  %r = graph.add %sum, %d : tensor<16x4xf32>
  return %r : tensor<16x4xf32>
}

// -----

// The sum over microbatches of a head's gradient and an embedding's: one scatter behind both sums.
// CHECK-LABEL: func @scatter_sinks
// CHECK-SAME:  (%[[ACC:.*]]: tensor<16x4xf32>, %[[HEAD:.*]]: tensor<16x4xf32>
// CHECK-NEXT:  %[[S:.*]] = graph.add %[[ACC]], %[[HEAD]]
// CHECK-NEXT:  %[[R:.*]] = graph.scatter_add %{{.*}} at %{{.*}} onto %[[S]]
// CHECK-NEXT:  return %[[R]]
func.func @scatter_sinks(%acc: tensor<16x4xf32>, %head: tensor<16x4xf32>, %ids: tensor<3xi32>, %rows: tensor<3x4xf32>) -> tensor<16x4xf32> {
  %zero = graph.constant dense<0.0> : tensor<16x4xf32>
  %d = graph.scatter_add %rows at %ids onto %zero : tensor<3x4xf32>, tensor<3xi32>, tensor<16x4xf32>
  %g = graph.add %d, %head : tensor<16x4xf32>
  %r = graph.add %acc, %g : tensor<16x4xf32>
  return %r : tensor<16x4xf32>
}

// -----

// Somebody else reads the scatter: nothing is won.
// CHECK-LABEL: func @scatter_with_two_readers
// CHECK:       graph.scatter_add
// CHECK:       graph.add
func.func @scatter_with_two_readers(%sum: tensor<16x4xf32>, %ids: tensor<3xi32>, %rows: tensor<3x4xf32>) -> (tensor<16x4xf32>, tensor<16x4xf32>) {
  %zero = graph.constant dense<0.0> : tensor<16x4xf32>
  %d = graph.scatter_add %rows at %ids onto %zero : tensor<3x4xf32>, tensor<3xi32>, tensor<16x4xf32>
  %r = graph.add %sum, %d : tensor<16x4xf32>
  return %r, %d : tensor<16x4xf32>, tensor<16x4xf32>
}

// -----

// Query, key and value of a fused projection, in whatever order they are added.
// CHECK-LABEL: func @three_slices
// CHECK-SAME:  (%[[Q:.*]]: tensor<2x4xf32>, %[[K:.*]]: tensor<2x4xf32>, %[[V:.*]]: tensor<2x8xf32>)
// CHECK-NEXT:  %[[R:.*]] = graph.concat %[[Q]], %[[K]], %[[V]] dim 1 : {{.*}} -> tensor<2x16xf32>
// CHECK-NEXT:  return %[[R]]
func.func @three_slices(%q: tensor<2x4xf32>, %k: tensor<2x4xf32>, %v: tensor<2x8xf32>) -> tensor<2x16xf32> {
  %pv = graph.pad %v low [0, 8] : tensor<2x8xf32> -> tensor<2x16xf32>
  %pk = graph.pad %k low [0, 4] : tensor<2x4xf32> -> tensor<2x16xf32>
  %s = graph.add %pv, %pk : tensor<2x16xf32>
  %pq = graph.pad %q low [0, 0] : tensor<2x4xf32> -> tensor<2x16xf32>
  %r = graph.add %s, %pq : tensor<2x16xf32>
  return %r : tensor<2x16xf32>
}

// -----

// A gap, an overlap, and two dimensions that differ.
// CHECK-LABEL: func @pads_that_do_not_meet
// CHECK-NOT:   graph.concat
// CHECK:       return
func.func @pads_that_do_not_meet(%a: tensor<2x4xf32>, %b: tensor<2x4xf32>) -> (tensor<2x16xf32>, tensor<2x16xf32>, tensor<4x8xf32>) {
  %0 = graph.pad %a low [0, 0] : tensor<2x4xf32> -> tensor<2x16xf32>
  %1 = graph.pad %b low [0, 5] : tensor<2x4xf32> -> tensor<2x16xf32>
  %2 = graph.add %0, %1 : tensor<2x16xf32>
  %3 = graph.pad %a low [0, 0] : tensor<2x4xf32> -> tensor<2x16xf32>
  %4 = graph.pad %b low [0, 3] : tensor<2x4xf32> -> tensor<2x16xf32>
  %5 = graph.add %3, %4 : tensor<2x16xf32>
  %6 = graph.pad %a low [0, 0] : tensor<2x4xf32> -> tensor<4x8xf32>
  %7 = graph.pad %b low [2, 4] : tensor<2x4xf32> -> tensor<4x8xf32>
  %8 = graph.add %6, %7 : tensor<4x8xf32>
  return %2, %5, %8 : tensor<2x16xf32>, tensor<2x16xf32>, tensor<4x8xf32>
}
