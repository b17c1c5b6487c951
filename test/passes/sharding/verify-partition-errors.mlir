// RUN: tessera-opt %s --verify-partition=device=1 --split-input-file --verify-diagnostics
// Each way in which the program of one device can be wrong.

dist.mesh @mesh [#dist.axis<"a" = 2>]
func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{'dist.reshard' op is not local; run partition-to-local first}}
  %y = dist.reshard %x to <@mesh, [{}]> : tensor<4xf32>
  return %y : tensor<4xf32>
}

// -----

dist.mesh @mesh [#dist.axis<"a" = 2>]
func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{still has 'dist.shardings'}}
  %y = graph.exp %x {dist.shardings = [#dist.sharding<@mesh, [{"a"}]>]} : tensor<4xf32>
  return %y : tensor<4xf32>
}

// -----

dist.mesh @mesh [#dist.axis<"a" = 2>]
// expected-error @+1 {{argument 0 has 'dist.sharding' without 'dist.global_shape'}}
func.func @f(%x: tensor<4xf32> {dist.sharding = #dist.sharding<@mesh, [{"a"}]>}) {
  return
}

// -----

// Of 7 elements device 0 has 4, device 1 has 3.
dist.mesh @mesh [#dist.axis<"a" = 2>]
// expected-error @+1 {{argument 0 is 'tensor<4xf32>', but its shard of 'tensor<7xf32>' is 'tensor<3xf32>'}}
func.func @f(%x: tensor<4xf32> {dist.global_shape = array<i64: 7>, dist.sharding = #dist.sharding<@mesh, [{"a"}]>}) {
  return
}

// -----

// No error: a shard as it should be.
dist.mesh @mesh [#dist.axis<"a" = 2>]
func.func @f(%x: tensor<3xf32> {dist.global_shape = array<i64: 7>, dist.sharding = #dist.sharding<@mesh, [{"a"}]>}) {
  return
}
