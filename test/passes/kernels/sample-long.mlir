// RUN: tessera-opt %s --fuse --emit-kernels=targets=cuda:sm_80 --canonicalize --cse | FileCheck %s

// A GPU gives each 1024 tokens of a long row a block, and each digit of a key a launch; the five of either key share one
// kernel. Only the first two read logits.
// CHECK-LABEL:   func.func @draw_long
// CHECK:         tile.launch @sample_allowed{{.*}} blocks [192]
// CHECK:         %[[ADJUSTED:.*]] = tile.launch @sample_changed
// CHECK-NEXT:    %[[BEST:.*]]:2 = tile.launch @sample_largest(%[[ADJUSTED]], %{{.*}}) blocks [30]
// CHECK-NEXT:    %[[W:.*]]:4 = tile.launch @sample_weights(%[[ADJUSTED]], %{{.*}}, %[[BEST]]#0) blocks [30] {{.*}} -> (tensor<30x1024xf32>,
// CHECK-NEXT:    %[[K:.*]]:2 = tile.launch @sample_top_k(%[[W]]#0, %{{.*}}, %[[W]]#1, %[[W]]#2, %[[W]]#3)
// CHECK-NEXT:    %[[K2:.*]]:2 = tile.launch @sample_top_k(%[[W]]#0, %{{.*}}, %[[W]]#1, %[[K]]#0, %[[K]]#1)
// CHECK-COUNT-3: tile.launch @sample_top_k
// CHECK-NEXT:    %[[LIMITED:.*]]:5 = tile.launch @sample_limited
// CHECK-COUNT-5: tile.launch @sample_top_p
// CHECK-NEXT:    tile.launch @sample_kept
// CHECK-NEXT:    %[[TOKEN:.*]] = tile.launch @sample(
// CHECK-NEXT:    return %[[TOKEN]] : tensor<3xi32>
func.func @draw_long(%l: tensor<3x9300xf32>, %a: tensor<3x600xi32>, %t: tensor<3x40xi32>, %c: tensor<3x40x4xf32>, %o: tensor<3x2xf32>, %n: tensor<3x4xi32>) -> tensor<3xi32> {
  %r = graph.sample %l allowed %a change %t by %c options %o limits %n : tensor<3x9300xf32>, tensor<3x600xi32>, tensor<3x40xi32>, tensor<3x40x4xf32>, tensor<3x2xf32>, tensor<3x4xi32> -> tensor<3xi32>
  return %r : tensor<3xi32>
}
