// Links with a longer latency want larger buckets. Devices along `near` are in one node, those along `far` are not.
// RUN: tessera-opt %s --order-collectives | FileCheck %s

module attributes {dist.cluster = #dist.cluster<"two nodes" flops = 262080000000000 memory = 2039000000000 launch = 2000
    links = [<span = 2, bandwidth = 10000000000, latency = 1000>, <span = 0, bandwidth = 10000000000, latency = 400000>]>} {
  dist.mesh @mesh [#dist.axis<"far" = 2>, #dist.axis<"near" = 2>]

  // CHECK-LABEL: func @near
  // CHECK: dist.all_reduce {{.*}} {dist.start = 0 : i64}
  // CHECK: dist.all_reduce {{.*}} {dist.start = 1 : i64}
  func.func @near(%x: tensor<512x512xf32>, %y: tensor<512x512xf32>) -> (tensor<512x512xf32>, tensor<512x512xf32>) {
    %a = dist.all_reduce sum %x over @mesh [#dist.axis_ref<"near">] : tensor<512x512xf32> -> tensor<512x512xf32>
    %b = dist.all_reduce sum %y over @mesh [#dist.axis_ref<"near">] : tensor<512x512xf32> -> tensor<512x512xf32>
    return %a, %b : tensor<512x512xf32>, tensor<512x512xf32>
  }

  // CHECK-LABEL: func @far
  // CHECK: dist.all_reduce {{.*}} {dist.start = 0 : i64}
  // CHECK: dist.all_reduce {{.*}} {dist.start = 0 : i64}
  func.func @far(%x: tensor<512x512xf32>, %y: tensor<512x512xf32>) -> (tensor<512x512xf32>, tensor<512x512xf32>) {
    %a = dist.all_reduce sum %x over @mesh [#dist.axis_ref<"far">] : tensor<512x512xf32> -> tensor<512x512xf32>
    %b = dist.all_reduce sum %y over @mesh [#dist.axis_ref<"far">] : tensor<512x512xf32> -> tensor<512x512xf32>
    return %a, %b : tensor<512x512xf32>, tensor<512x512xf32>
  }
}
