// RUN: tessera-opt %s --assign-shardings="mesh=data=2" --split-input-file --verify-diagnostics

// A module is sharded once.
// expected-error @+1 {{the module has shardings; give one from before the phase shard}}
dist.mesh @mesh [#dist.axis<"data" = 2>]
func.func @f(%x: tensor<4x8xf32> {dist.sharding = #dist.sharding<@mesh, [{"data"}, {}]>}) -> tensor<4x8xf32> {
  return %x : tensor<4x8xf32>
}
