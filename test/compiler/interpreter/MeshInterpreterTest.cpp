// Several devices: what each collective gives, where shares are, and how runs
// end that cannot go on.
#include "compiler/interpreter/MeshInterpreter.h"
#include "compiler/interpreter/MeshGrid.h"
#include "mlir/AsmParser/AsmParser.h"
#include "test/support/GraphTesting.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::interpreter;
using namespace tessera::testing;

namespace {

class OnMesh : public ::testing::Test {
protected:
  OnMesh() { context().loadDialect<dist::DistDialect>(); }

  /// A module with a mesh of 2 × 3 devices and @f.
  ModuleOp add(const std::string &function) {
    kept.push_back(parse("dist.mesh @mesh [#dist.axis<\"a\" = 2>, "
                         "#dist.axis<\"b\" = 3>]\n" +
                         function));
    EXPECT_TRUE(kept.back());
    return *kept.back();
  }

  /// @f on all devices; each of them has as input its number times 10, and one
  /// more for each element.
  std::vector<std::vector<double>> run(ArrayRef<ModuleOp> modules) {
    std::vector<Tensors> inputs;
    for (int64_t device = 0; device < 6; ++device) {
      ModuleOp module = modules[device];
      Tensors &own = inputs.emplace_back();
      for (Type type :
           module.lookupSymbol<func::FuncOp>("f").getArgumentTypes()) {
        own.emplace_back(cast<RankedTensorType>(type).getShape());
        for (int64_t i = 0; i < own.back().size(); ++i)
          own.back().data[i] = static_cast<double>(10 * device + i);
      }
    }
    auto results = interpretOnMesh(modules, "f", inputs);
    if (!results) {
      error = llvm::toString(results.takeError());
      return {};
    }
    std::vector<std::vector<double>> first;
    for (Tensors &own : *results)
      first.push_back(own.at(0).data);
    return first;
  }

  std::vector<std::vector<double>> runAll(const std::string &function) {
    return run(std::vector<ModuleOp>(6, add(function)));
  }

  std::vector<OwningOpRef<ModuleOp>> kept;
  std::string error;
};

using Values = std::vector<std::vector<double>>;

// func @f from `from` to `to` around one collective.
std::string around(const std::string &collective, const std::string &from,
                   const std::string &to) {
  return "func.func @f(%x: tensor<" + from + ">) -> tensor<" + to +
         "> { %y = dist." + collective + " : tensor<" + from + "> -> tensor<" +
         to + "> return %y : tensor<" + to + "> }";
}

TEST_F(OnMesh, AllReduce) {
  EXPECT_EQ(
      runAll(around("all_reduce sum %x over @mesh [#dist.axis_ref<\"b\">]",
                    "2xf32", "2xf32")),
      Values(
          {{30, 33}, {30, 33}, {30, 33}, {120, 123}, {120, 123}, {120, 123}}));
  EXPECT_EQ(
      runAll(around("all_reduce max %x over @mesh [#dist.axis_ref<\"a\">, "
                    "#dist.axis_ref<\"b\">]",
                    "1xf32", "1xf32")),
      Values(6, {50}));
}

TEST_F(OnMesh, AllGatherJoinsInTheOrderOfTheAxes) {
  EXPECT_EQ(runAll(around("all_gather %x dim 0 over @mesh "
                          "[#dist.axis_ref<\"b\">, #dist.axis_ref<\"a\">]",
                          "1xf32", "6xf32")),
            Values(6, {0, 30, 10, 40, 20, 50}));
  EXPECT_EQ(runAll(around("all_gather %x dim 1 over @mesh "
                          "[#dist.axis_ref<\"a\">]",
                          "2x1xf32", "2x2xf32"))[4],
            std::vector<double>({10, 40, 11, 41}));
}

TEST_F(OnMesh, SharesMayDiffer) {
  ModuleOp larger = add(around("all_gather %x dim 0 shares [2, 1, 1] "
                               "over @mesh [#dist.axis_ref<\"b\">]",
                               "2xf32", "4xf32")),
           smaller = add(around("all_gather %x dim 0 shares [2, 1, 1]"
                                " over @mesh [#dist.axis_ref<\"b\">]",
                                "1xf32", "4xf32"));
  std::vector<ModuleOp> modules{larger, smaller, smaller,
                                larger, smaller, smaller};
  EXPECT_EQ(run(modules), Values({{0, 1, 10, 20},
                                  {0, 1, 10, 20},
                                  {0, 1, 10, 20},
                                  {30, 31, 40, 50},
                                  {30, 31, 40, 50},
                                  {30, 31, 40, 50}}));
  // Devices that have the other's share.
  std::swap(modules[0], modules[1]);
  EXPECT_EQ(run(modules), Values());
  EXPECT_NE(error.find("comes with 1 entries, its shard has 2"),
            std::string::npos)
      << error;
}

TEST_F(OnMesh, ReduceScatter) {
  EXPECT_EQ(runAll(around("reduce_scatter sum %x dim 0 over @mesh "
                          "[#dist.axis_ref<\"b\">]",
                          "3xf32", "1xf32")),
            Values({{30}, {33}, {36}, {120}, {123}, {126}}));
  ModuleOp larger = add(around("reduce_scatter sum %x dim 0 shares [2, 1, "
                               "1] over @mesh [#dist.axis_ref<\"b\">]",
                               "4xf32", "2xf32")),
           smaller = add(around("reduce_scatter sum %x dim 0 shares [2, 1, "
                                "1] over @mesh [#dist.axis_ref<\"b\">]",
                                "4xf32", "1xf32"));
  EXPECT_EQ(run({larger, smaller, smaller, larger, smaller, smaller}),
            Values({{30, 33}, {36}, {39}, {120, 123}, {126}, {129}}));
}

TEST_F(OnMesh, AllToAll) {
  // [2, 2] of devices 1 and 4: rows are cut, columns joined.
  Values results = runAll(around("all_to_all %x split 0 join 1 over @mesh "
                                 "[#dist.axis_ref<\"a\">]",
                                 "2x2xf32", "1x4xf32"));
  EXPECT_EQ(results[1], std::vector<double>({10, 11, 40, 41}));
  EXPECT_EQ(results[4], std::vector<double>({12, 13, 42, 43}));
}

// [3, 1] to [4, 1] along b; `sends` and `receives` are three numbers each.
std::string exchange(const std::string &sends, const std::string &receives) {
  return "func.func @f(%x: tensor<3x1xf32>) -> tensor<4x1xf32> { %c = "
         "graph.constant dense<[[" +
         sends + "], [" + receives +
         "]]> : tensor<2x3xi32> %y = dist.exchange_rows %x counts %c over "
         "@mesh [#dist.axis_ref<\"b\">] : tensor<3x1xf32>, tensor<2x3xi32> -> "
         "tensor<4x1xf32> return %y : tensor<4x1xf32> }";
}

TEST_F(OnMesh, RowsAreExchangedAsCountsSay) {
  ModuleOp first = add(exchange("0, 1, 2", "0, 1, 0")),
           second = add(exchange("1, 0, 0", "1, 0, 1")),
           third = add(exchange("0, 1, 1", "2, 0, 1"));
  EXPECT_EQ(run({first, second, third, first, second, third}),
            Values({{10, 0, 0, 0},
                    {0, 20, 0, 0},
                    {1, 2, 21, 0},
                    {40, 0, 0, 0},
                    {30, 50, 0, 0},
                    {31, 32, 51, 0}}));
  // One that expects a row too few.
  ModuleOp wrong = add(exchange("0, 1, 1", "1, 0, 1"));
  EXPECT_EQ(run({first, second, wrong, first, second, wrong}), Values());
  EXPECT_NE(error.find("device 0 sends 2 rows to device 2, which expects 1"),
            std::string::npos)
      << error;
  // One that sends more than it has.
  ModuleOp full = add(exchange("0, 0, 4", "0, 0, 0")),
           idle = add(exchange("0, 0, 0", "0, 0, 0")),
           last = add(exchange("0, 0, 0", "4, 0, 0"));
  EXPECT_EQ(run({full, idle, last, full, idle, last}), Values());
  EXPECT_NE(error.find("a device sends more rows than it has"),
            std::string::npos)
      << error;
}

TEST_F(OnMesh, PermuteGivesZerosToWhomNobodySends) {
  EXPECT_EQ(runAll(around("permute %x targets [1, 2, -1] over @mesh "
                          "[#dist.axis_ref<\"b\">]",
                          "1xf32", "1xf32")),
            Values({{0}, {0}, {10}, {0}, {30}, {40}}));
}

TEST_F(OnMesh, StartedCollectivesAndBlocks) {
  EXPECT_EQ(runAll(R"(
    func.func private @block(%x: tensor<1xf32>) -> tensor<1xf32> {
      %p = dist.all_reduce sum %x over @mesh [#dist.axis_ref<"a">] : tensor<1xf32> -> !dist.pending<tensor<1xf32>>
      %d = graph.add %x, %x : tensor<1xf32>
      %s = dist.wait %p : !dist.pending<tensor<1xf32>> -> tensor<1xf32>
      %y = graph.sub %s, %d : tensor<1xf32>
      return %y : tensor<1xf32>
    }
    func.func @f(%x: tensor<1xf32>) -> tensor<1xf32> {
      %y = graph.loop 2 (%i, %c = %x) : (tensor<1xf32>) {
        %b = func.call @block(%c) : (tensor<1xf32>) -> tensor<1xf32>
        graph.yield %b : tensor<1xf32>
      }
      return %y : tensor<1xf32>
    })"),
            Values({{-60}, {-60}, {-60}, {60}, {60}, {60}}));
}

TEST_F(OnMesh, OffsetsAreWhereSharesBegin) {
  Values results = runAll(R"(
    func.func @f() -> tensor<i32> {
      %y = dist.offset of 7 over @mesh [#dist.axis_ref<"a">, #dist.axis_ref<"b">] : tensor<i32>
      return %y : tensor<i32>
    })");
  // 7 = 4 + 3, 4 = 2 + 1 + 1, 3 = 1 + 1 + 1
  EXPECT_EQ(results, Values({{0}, {2}, {3}, {4}, {5}, {6}}));
}

//===--- what cannot go on ------------------------------------------------===//

TEST_F(OnMesh, OtherCollectivesDoNotMeet) {
  ModuleOp sum = add(around("all_reduce sum %x over @mesh "
                            "[#dist.axis_ref<\"a\">]",
                            "1xf32", "1xf32")),
           max = add(around("all_reduce max %x over @mesh "
                            "[#dist.axis_ref<\"a\">]",
                            "1xf32", "1xf32"));
  EXPECT_EQ(run({sum, sum, sum, sum, max, sum}), Values());
  EXPECT_NE(error.find("meets another collective"), std::string::npos) << error;
}

TEST_F(OnMesh, DevicesThatWaitForEverAreSeen) {
  auto over = [&](const std::string &axis) {
    return add(around("all_reduce sum %x over @mesh [#dist.axis_ref<\"" + axis +
                          "\">]",
                      "1xf32", "1xf32"));
  };
  ModuleOp a = over("a"), b = over("b"),
           none = add("func.func @f(%x: tensor<1xf32>) -> tensor<1xf32> { "
                      "return %x : tensor<1xf32> }");
  EXPECT_EQ(run({a, b, b, b, a, a}), Values());
  EXPECT_NE(error.find("every device waits"), std::string::npos) << error;
  EXPECT_EQ(run({a, a, a, a, none, a}), Values());
  EXPECT_NE(error.find("wait for one that has ended"), std::string::npos)
      << error;
}

TEST_F(OnMesh, AFailureEndsAllDevices) {
  auto f = [&](int id) {
    return add("func.func @f(%x: tensor<1xf32>) -> tensor<1xf32> { %t = "
               "graph.constant dense<0.0> : tensor<2x1xf32> %i = "
               "graph.constant dense<" +
               std::to_string(id) +
               "> : tensor<i32> %r = graph.embedding %t, %i : "
               "(tensor<2x1xf32>, tensor<i32>) -> tensor<1xf32> %y = "
               "dist.all_reduce sum %r over @mesh [#dist.axis_ref<\"a\">] : "
               "tensor<1xf32> -> tensor<1xf32> return %y : tensor<1xf32> }");
  };
  ModuleOp good = f(1), bad = f(2);
  EXPECT_EQ(run({good, good, good, good, good, bad}), Values());
  EXPECT_NE(error.find("id 2 is outside a table of 2 rows"), std::string::npos)
      << error;
}

TEST_F(OnMesh, OneDeviceHasNoCollectives) {
  ModuleOp module = add(around("all_reduce sum %x over @mesh "
                               "[#dist.axis_ref<\"a\">]",
                               "1xf32", "1xf32"));
  auto results = interpret(module, "f", {Tensor({1}, 1)});
  EXPECT_FALSE(results);
  EXPECT_NE(llvm::toString(results.takeError()).find("devices of a mesh"),
            std::string::npos);
}

// Before partitioning tensors are global: shardings and reshards change
// nothing.
TEST_F(OnMesh, GlobalProgramsRunOnOne) {
  ModuleOp module = add(R"(
    func.func @f(%x: tensor<4xf32> {dist.sharding = #dist.sharding<@mesh, [{"a"}]>}) -> tensor<f32> {
      %y = graph.reduce %x sum dims [0] {dist.shardings = [#dist.sharding<@mesh, [], partial sum {"a"}>]} : tensor<4xf32> -> tensor<f32>
      %z = dist.reshard %y to <@mesh, []> : tensor<f32>
      return %z : tensor<f32>
    })");
  auto results = interpret(module, "f", {Tensor({4}, {1, 2, 3, 4})});
  ASSERT_TRUE(static_cast<bool>(results));
  EXPECT_EQ(results->at(0).data, std::vector<double>({10}));
}

//===--- shares -----------------------------------------------------------===//

dist::ShardingAttr sharding(const std::string &text) {
  return cast<dist::ShardingAttr>(mlir::parseAttribute(text, &context()));
}

TEST_F(OnMesh, SharesAreCutByFactors) {
  MeshGrid grid(meshOf(add("")));
  Tensor whole({12});
  for (int64_t i = 0; i < 12; ++i)
    whole.data[i] = static_cast<double>(i);
  auto cut = sharding("#dist.sharding<@mesh, [{3, 4:\"a\"}]>");
  EXPECT_EQ(grid.shareOf(whole, cut, 1).data,
            std::vector<double>({0, 1, 4, 5, 8, 9}));
  EXPECT_EQ(grid.shareOf(whole, cut, 5).data,
            std::vector<double>({2, 3, 6, 7, 10, 11}));
  auto uneven = sharding("#dist.sharding<@mesh, [{2, 6:{\"a\", \"b\"}}]>");
  EXPECT_EQ(grid.shareOf(whole, uneven, 4).data, std::vector<double>({4, 10}));
  EXPECT_EQ(
      grid.shareOf(whole, sharding("#dist.sharding<@mesh, [{\"a\":(1)2}]>"), 3)
          .data,
      std::vector<double>({6, 7, 8, 9, 10, 11}));
}

TEST_F(OnMesh, JoiningIsTheWayBack) {
  MeshGrid grid(meshOf(add("")));
  Tensor whole = draw({7, 12}, 3);
  for (const char *text :
       {"#dist.sharding<@mesh, [{\"b\"}, {3, 4:\"a\"}]>",
        "#dist.sharding<@mesh, [{}, {\"b\", \"a\"}]>",
        "#dist.sharding<@mesh, [{\"a\"}, {}], partial sum {\"b\"}>",
        "#dist.sharding<@mesh, [{}, {}], partial max {\"a\", \"b\"}>"}) {
    Tensors shares;
    for (int64_t device = 0; device < 6; ++device)
      shares.push_back(grid.shareOf(whole, sharding(text), device));
    std::vector<const Tensor *> pointers;
    for (const Tensor &share : shares)
      pointers.push_back(&share);
    auto joined = grid.join(pointers, sharding(text), whole.shape);
    ASSERT_TRUE(static_cast<bool>(joined)) << text;
    EXPECT_EQ(joined->data, whole.data) << text;
  }
}

TEST_F(OnMesh, CopiesThatDifferAreNoTensor) {
  MeshGrid grid(meshOf(add("")));
  Tensors shares(6, Tensor({2}, 1));
  shares[4].data[1] = 1 + 0x1p-52;
  std::vector<const Tensor *> pointers;
  for (const Tensor &share : shares)
    pointers.push_back(&share);
  auto joined = grid.join(pointers, {}, {2});
  EXPECT_FALSE(joined);
  EXPECT_NE(llvm::toString(joined.takeError()).find("devices 0 and 4"),
            std::string::npos);
}

} // namespace
