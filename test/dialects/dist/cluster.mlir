// RUN: tessera-opt %s | tessera-opt | FileCheck %s

// CHECK: module attributes {dist.cluster = #dist.cluster<"two nodes" flops = 262080000000000 memory = 2039000000000 launch = 2000 links = [<span = 8, bandwidth = 240000000000, latency = 3000>, <span = 0, bandwidth = 23000000000, latency = 10000>]>}
module attributes {dist.cluster = #dist.cluster<"two nodes" flops = 262080000000000 memory = 2039000000000 launch = 2000
    links = [<span = 8, bandwidth = 240000000000, latency = 3000>, <span = 0, bandwidth = 23000000000, latency = 10000>]>} {
}
