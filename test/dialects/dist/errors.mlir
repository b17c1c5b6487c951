// RUN: tessera-opt %s --split-input-file --verify-diagnostics

// expected-error@+1 {{axis size must be at least 1, got: 0}}
dist.mesh @zero [#dist.axis<"data" = 0>]

// -----

// expected-error@+1 {{has duplicate axis "data"}}
dist.mesh @twice [#dist.axis<"data" = 2>, #dist.axis<"data" = 2>]

// -----

// expected-error@+1 {{has more devices than fit 63 bits}}
dist.mesh @huge [#dist.axis<"a" = 4611686018427387904>, #dist.axis<"b" = 4>]

// -----

// expected-error@+1 {{sharding names mesh @mesh, which is not in the module}}
func.func @no_mesh(%x: tensor<8xf32> {dist.sharding = #dist.sharding<@mesh, [{"data"}]>}) { return }

// -----

dist.mesh @mesh [#dist.axis<"data" = 2>]
// expected-error@+1 {{mesh @mesh has no axis "tensor"}}
func.func @no_axis(%x: tensor<8xf32> {dist.sharding = #dist.sharding<@mesh, [{"tensor"}]>}) { return }

// -----

dist.mesh @mesh [#dist.axis<"data" = 2>]
// expected-error@+1 {{sharding has 1 dimensions, the tensor has 2}}
func.func @rank(%x: tensor<8x8xf32> {dist.sharding = #dist.sharding<@mesh, [{"data"}]>}) { return }

// -----

dist.mesh @mesh [#dist.axis<"data" = 8>]
// expected-error@+1 {{dimension 0 of size 4 cannot be split into 8 shards}}
func.func @too_many(%x: tensor<4xf32> {dist.sharding = #dist.sharding<@mesh, [{"data"}]>}) { return }

// -----

// expected-error@+1 {{axis "data" is used twice in one sharding}}
func.func @axis_twice(%x: tensor<8x8xf32> {dist.sharding = #dist.sharding<@mesh, [{"data"}, {"data"}]>}) { return }

// -----

// expected-error@+1 {{axis "data" is used twice in one sharding}}
func.func @overlap(%x: tensor<8x8xf32> {dist.sharding = #dist.sharding<@mesh, [{"data":(1)4}, {"data":(2)2}]>}) { return }

// -----

dist.mesh @mesh [#dist.axis<"data" = 6>]
// expected-error@+1 {{sub-axis (1)4 does not divide axis "data" of size 6}}
func.func @sub_axis(%x: tensor<8xf32> {dist.sharding = #dist.sharding<@mesh, [{"data":(1)4}]>}) { return }

// -----

dist.mesh @mesh [#dist.axis<"data" = 2>]
// expected-error@+1 {{only tensors are sharded, got 'f32'}}
func.func @scalar(%x: f32 {dist.sharding = #dist.sharding<@mesh, []>}) { return }

// -----

dist.mesh @mesh [#dist.axis<"data" = 2>]
func.func @results(%x: tensor<8xf32>) {
  // expected-error@+1 {{'dist.shardings' must have one entry for each of 1 results}}
  %0 = graph.neg %x {dist.shardings = []} : tensor<8xf32>
  return
}

// -----

dist.mesh @mesh [#dist.axis<"data" = 2>]
func.func @partial(%x: tensor<8xf32>) {
  // expected-error@+1 {{cannot make a value partial along axis "data"}}
  %0 = dist.reshard %x to <@mesh, [{}], partial sum {"data"}> : tensor<8xf32>
  return
}

// -----

dist.mesh @mesh [#dist.axis<"data" = 2>]
func.func @gather(%x: tensor<8xf32>) {
  // expected-error@+1 {{result must be 'tensor<16xf32>', got 'tensor<8xf32>'}}
  %0 = dist.all_gather %x dim 0 over @mesh [#dist.axis_ref<"data">] : tensor<8xf32> -> tensor<8xf32>
  return
}

// -----

dist.mesh @mesh [#dist.axis<"data" = 3>]
func.func @scatter(%x: tensor<8xf32>) {
  // expected-error@+1 {{dimension 0 of size 8 does not divide among 3 devices}}
  %0 = dist.reduce_scatter sum %x dim 0 over @mesh [#dist.axis_ref<"data">] : tensor<8xf32> -> tensor<8xf32>
  return
}

// -----

dist.mesh @mesh [#dist.axis<"data" = 2>]
func.func @permute(%x: tensor<8xf32>) {
  // expected-error@+1 {{sends to device 0 twice}}
  %0 = dist.permute %x targets [0, 0] over @mesh [#dist.axis_ref<"data">] : tensor<8xf32> -> tensor<8xf32>
  return
}

// -----

func.func @wait(%x: !dist.pending<tensor<8xf32>>) {
  // expected-error@+1 {{waits for '!dist.pending<tensor<8xf32>>' but gives 'tensor<4xf32>'}}
  %0 = dist.wait %x : <tensor<8xf32>> -> tensor<4xf32>
  return
}

// -----

// expected-error@+1 {{an axis has a name}}
dist.mesh @nameless [#dist.axis<"" = 2>]

// -----

// expected-error@+1 {{an axis has a name}}
func.func @nameless(%x: tensor<8xf32> {dist.sharding = #dist.sharding<@mesh, [{""}]>}) { return }

// -----

// expected-error@+1 {{a sub-axis is (pre)size with both at least 1, got: (0)2}}
func.func @sub_axis_pre(%x: tensor<8xf32> {dist.sharding = #dist.sharding<@mesh, [{"data":(0)2}]>}) { return }

// -----

// expected-error@+1 {{a sub-axis is (pre)size with both at least 1, got: (2)0}}
func.func @sub_axis_size(%x: tensor<8xf32> {dist.sharding = #dist.sharding<@mesh, [{"data":(2)0}]>}) { return }

// -----

// expected-error@+1 {{axis "data" is used twice in one sharding}}
func.func @partial_twice(%x: tensor<8xf32> {dist.sharding = #dist.sharding<@mesh, [{"data"}], partial sum {"data"}>}) { return }

// -----

// expected-error@+1 {{axis "data" is used twice in one sharding}}
func.func @partial_and_own(%x: tensor<8xf32> {dist.sharding = #dist.sharding<@mesh, [{}], partial sum {"data"}, own {"data"}>}) { return }

// -----

dist.mesh @mesh [#dist.axis<"data" = 2>]
// expected-error@+1 {{mesh @mesh has no axis "expert"}}
func.func @own_axis(%x: tensor<8xf32> {dist.sharding = #dist.sharding<@mesh, [{}], own {"expert"}>}) { return }

// -----

// expected-error@+1 {{partial values combine by sum or max, got 'product'}}
func.func @kind(%x: tensor<8xf32> {dist.sharding = #dist.sharding<@mesh, [{}], partial product {"data"}>}) { return }

// -----

dist.mesh @mesh [#dist.axis<"data" = 2>]
// expected-error@+1 {{mesh @mesh has no axis "tensor"}}
func.func @partial_axis(%x: tensor<8xf32> {dist.sharding = #dist.sharding<@mesh, [{}], partial sum {"tensor"}>}) { return }

// -----

// expected-error@+1 {{a value's placement must be a #dist.sharding, got "data"}}
func.func @placement(%x: tensor<8xf32> {dist.sharding = "data"}) { return }

// -----

// expected-error@+1 {{argument 0 has unknown attribute 'dist.place'}}
func.func @argument_attribute(%x: tensor<8xf32> {dist.place = "here"}) { return }

// -----

// expected-error@+1 {{result 0 has unknown attribute 'dist.place'}}
func.func @result_attribute(%x: tensor<8xf32>) -> (tensor<8xf32> {dist.place = "here"}) {
  return %x : tensor<8xf32>
}

// -----

dist.mesh @mesh [#dist.axis<"data" = 2>]
// expected-error@+1 {{sharding has 0 dimensions, the tensor has 1}}
func.func @result_sharding(%x: tensor<8xf32>) -> (tensor<8xf32> {dist.sharding = #dist.sharding<@mesh, []>}) {
  return %x : tensor<8xf32>
}

// -----

func.func @op_attribute(%x: tensor<8xf32>) {
  // expected-error@+1 {{has unknown attribute 'dist.sharding'}}
  %0 = graph.neg %x {dist.sharding = #dist.sharding<@mesh, [{"data"}]>} : tensor<8xf32>
  return
}

// -----

dist.mesh @mesh [#dist.axis<"data" = 2>]
func.func @op_sharding(%x: tensor<8xf32>) {
  // expected-error@+1 {{sharding has 2 dimensions, the tensor has 1}}
  %0 = graph.neg %x {dist.shardings = [#dist.sharding<@mesh, [{}, {}]>]} : tensor<8xf32>
  return
}

// -----

func.func @reshard_mesh(%x: tensor<8xf32>) {
  // expected-error@+1 {{names mesh @mesh, which is not in the module}}
  %0 = dist.reshard %x to <@mesh, [{"data"}]> : tensor<8xf32>
  return
}

// -----

dist.mesh @mesh [#dist.axis<"data" = 16>]
func.func @reshard_pieces(%x: tensor<8xf32>) {
  // expected-error@+1 {{dimension 0 of size 8 cannot be split into 16 shards}}
  %0 = dist.reshard %x to <@mesh, [{"data"}]> : tensor<8xf32>
  return
}

// -----

func.func @collective_mesh(%x: tensor<8xf32>) {
  // expected-error@+1 {{names mesh @mesh, which is not in the module}}
  %0 = dist.all_reduce sum %x over @mesh [#dist.axis_ref<"data">] : tensor<8xf32> -> tensor<8xf32>
  return
}

// -----

dist.mesh @mesh [#dist.axis<"data" = 2>]
func.func @collective_axis(%x: tensor<8xf32>) {
  // expected-error@+1 {{mesh @mesh has no axis "tensor"}}
  %0 = dist.all_reduce sum %x over @mesh [#dist.axis_ref<"tensor">] : tensor<8xf32> -> tensor<8xf32>
  return
}

// -----

dist.mesh @mesh [#dist.axis<"data" = 2>]
func.func @collective_type(%x: tensor<8xf32>) {
  // expected-error@+1 {{result must be 'tensor<8xf32>', got 'tensor<8xbf16>'}}
  %0 = dist.all_reduce sum %x over @mesh [#dist.axis_ref<"data">] : tensor<8xf32> -> tensor<8xbf16>
  return
}

// -----

dist.mesh @mesh [#dist.axis<"data" = 2>]
func.func @gather_dimension(%x: tensor<8xf32>) {
  // expected-error@+1 {{has no dimension 1 in 'tensor<8xf32>'}}
  %0 = dist.all_gather %x dim 1 over @mesh [#dist.axis_ref<"data">] : tensor<8xf32> -> tensor<16xf32>
  return
}

// -----

dist.mesh @mesh [#dist.axis<"data" = 2>]
func.func @scatter_dimension(%x: tensor<8xf32>) {
  // expected-error@+1 {{has no dimension -1 in 'tensor<8xf32>'}}
  %0 = dist.reduce_scatter sum %x dim -1 over @mesh [#dist.axis_ref<"data">] : tensor<8xf32> -> tensor<4xf32>
  return
}

// -----

dist.mesh @mesh [#dist.axis<"data" = 2>]
func.func @split_dimension(%x: tensor<8x8xf32>) {
  // expected-error@+1 {{has no dimension 2 in 'tensor<8x8xf32>'}}
  %0 = dist.all_to_all %x split 2 join 0 over @mesh [#dist.axis_ref<"data">] : tensor<8x8xf32> -> tensor<8x8xf32>
  return
}

// -----

dist.mesh @mesh [#dist.axis<"data" = 2>]
func.func @join_dimension(%x: tensor<8x8xf32>) {
  // expected-error@+1 {{has no dimension 3 in 'tensor<8x8xf32>'}}
  %0 = dist.all_to_all %x split 0 join 3 over @mesh [#dist.axis_ref<"data">] : tensor<8x8xf32> -> tensor<8x8xf32>
  return
}

// -----

dist.mesh @mesh [#dist.axis<"data" = 3>]
func.func @split_uneven(%x: tensor<8x8xf32>) {
  // expected-error@+1 {{dimension 0 of size 8 does not divide among 3 devices}}
  %0 = dist.all_to_all %x split 0 join 1 over @mesh [#dist.axis_ref<"data">] : tensor<8x8xf32> -> tensor<8x8xf32>
  return
}

// -----

dist.mesh @mesh [#dist.axis<"data" = 2>]
func.func @rows_of_rank(%x: tensor<8xf32>, %c: tensor<2x2xi32>) {
  // expected-error@+1 {{moves rows [rows, width], got 'tensor<8xf32>'}}
  %0 = dist.exchange_rows %x counts %c over @mesh [#dist.axis_ref<"data">] : tensor<8xf32>, tensor<2x2xi32> -> tensor<8xf32>
  return
}

// -----

dist.mesh @mesh [#dist.axis<"data" = 2>]
func.func @rows_counts(%x: tensor<8x4xf32>, %c: tensor<2x3xi32>) {
  // expected-error@+1 {{expects counts of type tensor<2x2xi32>, or with pieces tensor<4xNxi32> for a multiple of 2, got 'tensor<2x3xi32>'}}
  %0 = dist.exchange_rows %x counts %c over @mesh [#dist.axis_ref<"data">] : tensor<8x4xf32>, tensor<2x3xi32> -> tensor<16x4xf32>
  return
}

// -----

dist.mesh @mesh [#dist.axis<"data" = 2>]
func.func @rows_width(%x: tensor<8x4xf32>, %c: tensor<2x2xi32>) {
  // expected-error@+1 {{result must be 'tensor<16x4xf32>', got 'tensor<16x5xf32>'}}
  %0 = dist.exchange_rows %x counts %c over @mesh [#dist.axis_ref<"data">] : tensor<8x4xf32>, tensor<2x2xi32> -> tensor<16x5xf32>
  return
}

// -----

dist.mesh @mesh [#dist.axis<"data" = 2>]
func.func @permute_range(%x: tensor<8xf32>) {
  // expected-error@+1 {{sends to device 2 of 2}}
  %0 = dist.permute %x targets [2, 0] over @mesh [#dist.axis_ref<"data">] : tensor<8xf32> -> tensor<8xf32>
  return
}

// -----

dist.mesh @mesh [#dist.axis<"data" = 2>]
func.func @permute_negative(%x: tensor<8xf32>) {
  // expected-error@+1 {{sends to device -2 of 2}}
  %0 = dist.permute %x targets [-2, 0] over @mesh [#dist.axis_ref<"data">] : tensor<8xf32> -> tensor<8xf32>
  return
}

// -----

dist.mesh @mesh [#dist.axis<"data" = 2>]
func.func @permute_count(%x: tensor<8xf32>) {
  // expected-error@+1 {{has 3 targets for 2 devices}}
  %0 = dist.permute %x targets [1, 0, -1] over @mesh [#dist.axis_ref<"data">] : tensor<8xf32> -> tensor<8xf32>
  return
}

// -----

func.func @pack(%x: tensor<4xf32>, %y: tensor<4xi32>) {
  // expected-error@+1 {{cannot pack 'tensor<4xi32>' into 'tensor<32xf32>'}}
  %0 = dist.pack(%x, %y) pieces 1 : (tensor<4xf32>, tensor<4xi32>) -> tensor<32xf32>
  return
}

// -----

func.func @pack(%x: tensor<5xf32>) {
  // expected-error@+1 {{cannot split 'tensor<5xf32>' into 2 equal pieces}}
  %0 = dist.pack(%x) pieces 2 : (tensor<5xf32>) -> tensor<32xf32>
  return
}

// -----

func.func @pack(%x: tensor<5xf32>) {
  // expected-error@+1 {{expects 'tensor<16xf32>', got 'tensor<5xf32>'}}
  %0 = dist.pack(%x) pieces 1 : (tensor<5xf32>) -> tensor<5xf32>
  return
}

// -----

func.func @pack() {
  // expected-error@+1 {{requires at least one tensor}}
  %0 = dist.pack() pieces 1 : () -> tensor<0xf32>
  return
}

// -----

func.func @unpack(%x: tensor<16xf32>) {
  // expected-error@+1 {{expects 'tensor<32xf32>', got 'tensor<16xf32>'}}
  %0 = dist.unpack %x pieces 2 : (tensor<16xf32>) -> tensor<4xf32>
  return
}

// -----

// expected-error @+1 {{'dist.counts_before' must have no value}}
func.func @f() attributes {dist.counts_before = 1 : i64} {
  return
}

// -----

// expected-error @+1 {{'dist.cluster' must be a #dist.cluster on a module}}
module attributes {dist.cluster = 1 : i64} {
}

// -----

// expected-error @+1 {{the last tier of links must connect all devices (span 0)}}
module attributes {dist.cluster = #dist.cluster<"c" flops = 1 memory = 1 launch = 0 links = [<span = 8, bandwidth = 1, latency = 0>]>} {
}

// -----

// expected-error @+1 {{each tier of links must span more devices than the one before}}
module attributes {dist.cluster = #dist.cluster<"c" flops = 1 memory = 1 launch = 0 links = [<span = 8, bandwidth = 1, latency = 0>, <span = 4, bandwidth = 1, latency = 0>, <span = 0, bandwidth = 1, latency = 0>]>} {
}

// -----

// expected-error @+2 {{a link has a positive bandwidth, and neither span nor latency is negative}}
// expected-error @+1 {{failed to parse Dist_ClusterAttr parameter 'links'}}
module attributes {dist.cluster = #dist.cluster<"c" flops = 1 memory = 1 launch = 0 links = [<span = 0, bandwidth = 0, latency = 0>]>} {
}

// -----

// expected-error @+1 {{'dist.pair' must be the number of a pair, and 0 for its forward or 1 for its backward}}
func.func @f() attributes {dist.pair = array<i64: 0, 2>} {
  return
}
