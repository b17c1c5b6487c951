// Programs of several ranks the whole way: fused, tiled, planned, compiled,
// written, read and run by one thread a rank, against loops over all of them.
// All numbers are small integers, so sums are exact in any order.
#include "compiler/artifact/ArtifactWriter.h"
#include "compiler/target/cpu/CpuTarget.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "passes/fusion/Fusion.h"
#include "passes/kernels/Passes.h"
#include "passes/overlap/Overlap.h"
#include "passes/planning/Planning.h"
#include "runtime/artifact/Shares.h"
#include "runtime/comm/ThreadTransport.h"
#include "runtime/hal/Session.h"
#include "test/support/RunKernels.h"
#include "llvm/ADT/StringExtras.h"
#include <cstring>
#include <gtest/gtest.h>
#include <thread>

using namespace mlir;
using namespace tessera;

namespace {

constexpr const char *kTarget = "cpu:avx2";

/// A local program through all phases behind partitioning; scheduling takes
/// none that starts collectives itself.
class CompiledShare {
public:
  CompiledShare(const std::string &text, std::vector<int64_t> ranks,
                bool isScheduled = false)
      : ranks(std::move(ranks)),
        module(parseSourceString<ModuleOp>(
            text, &tessera::testing::kernelContext())) {
    EXPECT_TRUE(module) << text;
    PassManager kernels(&tessera::testing::kernelContext()),
        planning(&tessera::testing::kernelContext());
    buildFusionPipeline(kernels);
    kernels.addPass(createVerifyFused());
    if (isScheduled)
      buildOverlapPipeline(kernels);
    buildKernelsPipeline(kernels, {kTarget});
    buildPlanningPipeline(planning);
    EXPECT_TRUE(succeeded(kernels.run(*module)));
    auto compiled = tessera::testing::KernelProgram::compile(*module, kTarget);
    EXPECT_TRUE(bool(compiled)) << llvm::toString(compiled.takeError());
    program = std::move(*compiled);
    EXPECT_TRUE(succeeded(planning.run(*module)));
  }

  SharePart part() const {
    CodeObject code;
    code.target = kTarget;
    code.features = cpu::requiredFeatures(kTarget);
    code.elf = program->object().elf;
    for (const auto &entry : program->object().scratchBytes)
      code.scratch[entry.getKey()] = static_cast<int64_t>(entry.getValue());
    return {ranks, {DevicePart{"cpu", *module, {code}, {}}}};
  }

private:
  std::vector<int64_t> ranks;
  OwningOpRef<ModuleOp> module;
  std::unique_ptr<tessera::testing::KernelProgram> program;
};

/// The artifact of some shares, in memory.
class Written {
public:
  explicit Written(llvm::ArrayRef<CompiledShare> shares) {
    std::vector<SharePart> parts;
    for (const CompiledShare &share : shares)
      parts.push_back(share.part());
    llvm::Expected<std::string> bytes =
        writeArtifact(llvm::ArrayRef<SharePart>(parts), {});
    EXPECT_TRUE(bool(bytes)) << llvm::toString(bytes.takeError());
    memory.resize(bytes->size() + 64);
    auto *begin = reinterpret_cast<std::byte *>(
        llvm::alignTo(reinterpret_cast<uintptr_t>(memory.data()), 64));
    std::memcpy(begin, bytes->data(), bytes->size());
    auto opened = ArtifactReader::fromBytes({begin, bytes->size()}, "written");
    EXPECT_TRUE(opened.ok()) << opened.message();
    reader = opened.take();
  }
  std::vector<std::byte> memory;
  ArtifactReader reader;
};

using Body = std::function<Status(hal::Session &, const artifact::Mesh &,
                                  const artifact::Coordinates &)>;

/// Calls body in a thread for each rank, with a session of the rank.
void onRanks(const ArtifactReader &reader, const Body &body) {
  const artifact::Mesh mesh(reader.root());
  auto transports =
      comm::ThreadTransport::create(static_cast<int>(mesh.ranks()), {});
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < mesh.ranks(); ++rank)
    threads.emplace_back([&, rank] {
      comm::WorldOptions quiet;
      quiet.timeout = std::chrono::seconds(30);
      auto world = comm::World::over(std::move(transports[rank]), quiet);
      hal::SessionOptions options;
      options.deviceOptions.threads = 1;
      options.deviceOptions.cpuTarget = kTarget;
      options.mesh = {rank, world.get()};
      auto session = hal::Session::open(reader, options);
      EXPECT_TRUE(session.ok()) << session.message();
      if (session.ok()) {
        Status status = body(**session, mesh, mesh.coordinatesOf(rank));
        EXPECT_TRUE(status.ok()) << "rank " << rank << ": " << status.message();
      }
      (void)world->leave();
    });
  for (std::thread &thread : threads)
    thread.join();
}

/// Of the tensor of that name, the elements of `whole` that the rank has; all
/// where it is not cut.
std::vector<float> shareOf(std::span<const hal::TensorInfo> tensors,
                           llvm::StringRef name, const artifact::Mesh &mesh,
                           const artifact::Coordinates &at,
                           const std::vector<float> &whole) {
  for (const hal::TensorInfo &tensor : tensors) {
    if (tensor.name != std::string_view(name))
      continue;
    std::vector<float> part(tensor.elements());
    artifact::copyToShare(*tensor.source, mesh, at,
                          std::as_bytes(std::span(whole)),
                          std::as_writable_bytes(std::span(part)));
    return part;
  }
  ADD_FAILURE() << "no tensor " << name.str();
  return {};
}

void expectOutput(hal::Session &session, llvm::StringRef program,
                  llvm::StringRef name, const artifact::Mesh &mesh,
                  const artifact::Coordinates &at,
                  const std::vector<float> &whole) {
  std::vector<float> expected =
      shareOf(session.outputs(program.str()), name, mesh, at, whole);
  std::vector<float> found(expected.size());
  Status status = session.readOutput(program.str(), name.str(),
                                     std::as_writable_bytes(std::span(found)));
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(found, expected) << name.str();
}

std::vector<float> numbers(size_t count, int seed) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i)
    values[i] = static_cast<float>(
        static_cast<int>(i * 7 + static_cast<size_t>(seed) * 5) % 13 - 6);
  return values;
}

std::string replaced(std::string text, llvm::StringRef what,
                     const std::string &by) {
  for (size_t at; (at = text.find(what)) != std::string::npos;)
    text.replace(at, what.size(), by);
  return text;
}

//===--- three ranks, eight rows ------------------------------------------===//

// $R: rows of this share. Gathers are started before what does not need them.
constexpr const char *kRows = R"(
module attributes {dist.offsets = [#dist.factor<8:"data">]} {
dist.mesh @mesh [#dist.axis<"data" = 3>]
func.func @step(
    %x: tensor<$Rx4xf32> {graph.input = "x", $CUT},
    %z: tensor<6x2xf32> {graph.input = "z"},
    %w: tensor<4xf32> {graph.state = "w", graph.role = #graph<role parameter>},
    %offsets: tensor<1xi32> {graph.input = "mesh.offsets"})
    -> (tensor<$Rx4xf32> {graph.output = "part", $CUT},
        tensor<2x3x2xf32> {graph.output = "exchanged"},
        tensor<6x2xf32> {graph.output = "moved"},
        tensor<$Rxf32> {graph.output = "rows", dist.sharding = #dist.sharding<@mesh, [{"data"}]>, dist.global_shape = array<i64: 8>},
        tensor<4xf32> {graph.state = "w", graph.role = #graph<role parameter>}) {
  // The sum of squares of all rows.
  %square = graph.mul %x, %x : tensor<$Rx4xf32>
  %column = graph.reduce %square sum dims [0] : tensor<$Rx4xf32> -> tensor<4xf32>
  %sum = dist.all_reduce sum %column over @mesh [#dist.axis_ref<"data">] : tensor<4xf32> -> tensor<4xf32>
  %new = graph.add %w, %sum : tensor<4xf32>
  // Everybody's rows, negated; each rank's part of what all make of them.
  %minus = graph.neg %x : tensor<$Rx4xf32>
  $GATHER
  %scale = graph.broadcast %w dims [1] : tensor<4xf32> -> tensor<8x4xf32>
  %scaled = graph.mul %all, %scale : tensor<8x4xf32>
  %scattered = dist.reduce_scatter sum %scaled dim 0 shares [3, 3, 2] over @mesh [#dist.axis_ref<"data">] : tensor<8x4xf32> -> tensor<$Rx4xf32>
  %part = graph.add %scattered, %x : tensor<$Rx4xf32>
  // Pieces of two rows to each.
  %twice = graph.add %z, %z : tensor<6x2xf32>
  %pieces = dist.all_to_all %twice split 0 join 0 over @mesh [#dist.axis_ref<"data">] : tensor<6x2xf32> -> tensor<6x2xf32>
  %grouped = graph.reshape %pieces : tensor<6x2xf32> -> tensor<3x2x2xf32>
  %exchanged = graph.transpose %grouped [1, 0, 2] : tensor<3x2x2xf32> -> tensor<2x3x2xf32>
  // To the next rank.
  %next = dist.permute %twice targets [1, 2, -1] over @mesh [#dist.axis_ref<"data">] : tensor<6x2xf32> -> tensor<6x2xf32>
  %moved = graph.neg %next : tensor<6x2xf32>
  // The numbers of this rank's rows.
  %start = graph.reshape %offsets : tensor<1xi32> -> tensor<i32>
  %starts = graph.broadcast %start dims [] : tensor<i32> -> tensor<$Rxi32>
  %iota = graph.iota dim 0 : tensor<$Rxi32>
  %ids = graph.add %iota, %starts : tensor<$Rxi32>
  %rows = graph.convert %ids : tensor<$Rxi32> -> tensor<$Rxf32>
  return %part, %exchanged, %moved, %rows, %new : tensor<$Rx4xf32>, tensor<2x3x2xf32>, tensor<6x2xf32>, tensor<$Rxf32>, tensor<4xf32>
}
}
)";

constexpr const char *kGatherNow =
    R"(%all = dist.all_gather %minus dim 0 shares [3, 3, 2] over @mesh [#dist.axis_ref<"data">] : tensor<$Rx4xf32> -> tensor<8x4xf32>)";
// Work on the part, and on what could take its place, in between.
constexpr const char *kGatherEarly = R"(
  %pending = dist.all_gather %minus dim 0 shares [3, 3, 2] over @mesh [#dist.axis_ref<"data">] : tensor<$Rx4xf32> -> !dist.pending<tensor<8x4xf32>>
  %busy = graph.exp %minus : tensor<$Rx4xf32>
  %busier = dist.all_reduce max %busy over @mesh [#dist.axis_ref<"more">] : tensor<$Rx4xf32> -> tensor<$Rx4xf32>
  %busiest = graph.exp %busier : tensor<$Rx4xf32>
  %all = dist.wait %pending : <tensor<8x4xf32>> -> tensor<8x4xf32>)";

std::string rowsText(int64_t rows, const char *gather) {
  std::string text = replaced(kRows, "$GATHER", gather);
  if (gather == kGatherEarly)
    text = replaced(text, R"("data" = 3>])",
                    R"("data" = 3>, #dist.axis<"more" = 1>])");
  text = replaced(text, "$CUT",
                  "dist.sharding = #dist.sharding<@mesh, [{\"data\"}, {}]>, "
                  "dist.global_shape = array<i64: 8, 4>");
  return replaced(text, "$R", std::to_string(rows));
}

void expectRows(const char *gather) {
  const CompiledShare shares[] = {{rowsText(3, gather), {0, 1}},
                                  {rowsText(2, gather), {2}}};
  const Written written(shares);
  const std::vector<float> x = numbers(32, 1), w = numbers(4, 2);
  std::vector<float> newW = w, part(32), rows(8);
  for (size_t i = 0; i < 32; ++i) {
    newW[i % 4] += x[i] * x[i];
    part[i] = -3 * x[i] * w[i % 4] + x[i];
    rows[i / 4] = static_cast<float>(i / 4);
  }
  onRanks(written.reader,
          [&](hal::Session &session, const artifact::Mesh &mesh,
              const artifact::Coordinates &at) -> Status {
            const int me = static_cast<int>(at[0]);
            for (int run = 0; run < 2; ++run) {
              std::vector<float> mine =
                  shareOf(session.inputs("step"), "x", mesh, at, x);
              TESSERA_RETURN_IF_ERROR(
                  session.writeState("w", std::as_bytes(std::span(w))));
              TESSERA_RETURN_IF_ERROR(session.writeInput(
                  "step", "x", std::span<const float>(mine)));
              TESSERA_RETURN_IF_ERROR(session.writeInput(
                  "step", "z", std::span<const float>(numbers(12, me))));
              TESSERA_RETURN_IF_ERROR(session.run("step"));
            }
            std::vector<float> exchanged(12), moved(12, -0.0f);
            for (int from = 0; from < 3; ++from)
              for (int row = 0; row < 2; ++row)
                for (int c = 0; c < 2; ++c)
                  exchanged[row * 6 + from * 2 + c] =
                      2 * numbers(12, from)[me * 4 + row * 2 + c];
            for (size_t i = 0; i < 12 && me > 0; ++i)
              moved[i] = -2 * numbers(12, me - 1)[i];
            expectOutput(session, "step", "part", mesh, at, part);
            expectOutput(session, "step", "rows", mesh, at, rows);
            expectOutput(session, "step", "exchanged", mesh, at, exchanged);
            expectOutput(session, "step", "moved", mesh, at, moved);
            std::vector<float> state(4);
            TESSERA_RETURN_IF_ERROR(session.readState(
                "w", std::as_writable_bytes(std::span(state))));
            EXPECT_EQ(state, newW);
            return Status::success();
          });
}

} // namespace

TEST(PlannedRanks, EveryCollectiveOfUnevenShares) { expectRows(kGatherNow); }

TEST(PlannedRanks, StartedBeforeOtherWork) { expectRows(kGatherEarly); }

//===--- rows that are counted when the program runs ----------------------===//

// Three ranks with three rows and room for four, the first time blocking, the
// second beside other work.
TEST(PlannedRanks, RowsThatAreCounted) {
  const CompiledShare share(R"(
dist.mesh @mesh [#dist.axis<"expert" = 3>]
func.func @step(%x: tensor<3x2xf32> {graph.input = "x"}, %n: tensor<2x3xi32> {graph.input = "n"})
    -> (tensor<4x2xf32> {graph.output = "now"}, tensor<4x2xf32> {graph.output = "later"}, tensor<3x2xf32> {graph.output = "beside"}) {
  %one = graph.constant dense<1> : tensor<2x3xi32>
  %two = graph.add %n, %one : tensor<2x3xi32>
  %counts = graph.sub %two, %one : tensor<2x3xi32>
  %minus = graph.neg %x : tensor<3x2xf32>
  %now = dist.exchange_rows %x counts %n over @mesh [#dist.axis_ref<"expert">] : tensor<3x2xf32>, tensor<2x3xi32> -> tensor<4x2xf32>
  %pending = dist.exchange_rows %minus counts %counts over @mesh [#dist.axis_ref<"expert">] : tensor<3x2xf32>, tensor<2x3xi32> -> !dist.pending<tensor<4x2xf32>>
  %beside = graph.exp %x : tensor<3x2xf32>
  %later = dist.wait %pending : <tensor<4x2xf32>> -> tensor<4x2xf32>
  %plain = graph.neg %now : tensor<4x2xf32>
  return %plain, %later, %beside : tensor<4x2xf32>, tensor<4x2xf32>, tensor<3x2xf32>
}
)",
                            {0, 1, 2});
  const Written written(share);
  // Of each rank the rows that it sends to each, and those that it gets.
  const std::vector<std::vector<int32_t>> counts = {
      {0, 1, 2, 0, 1, 0}, {1, 0, 0, 1, 0, 1}, {0, 1, 1, 2, 0, 1}};
  // Where each of the rows that a rank gets was: rank and row.
  const std::vector<std::vector<std::pair<int, size_t>>> come = {
      {{1, 0}}, {{0, 0}, {2, 0}}, {{0, 1}, {0, 2}, {2, 1}}};
  onRanks(
      written.reader,
      [&](hal::Session &session, const artifact::Mesh &mesh,
          const artifact::Coordinates &at) -> Status {
        const auto me = static_cast<size_t>(at[0]);
        TESSERA_RETURN_IF_ERROR(session.writeInput(
            "step", "x",
            std::span<const float>(numbers(6, static_cast<int>(me)))));
        TESSERA_RETURN_IF_ERROR(session.writeInput(
            "step", "n", std::span<const int32_t>(counts[me])));
        for (int run = 0; run < 2; ++run)
          TESSERA_RETURN_IF_ERROR(session.run("step"));
        std::vector<float> rows;
        for (auto [rank, row] : come[me])
          for (size_t column = 0; column < 2; ++column)
            rows.push_back(-numbers(6, rank)[2 * row + column]);
        rows.resize(8);
        expectOutput(session, "step", "later", mesh, at, rows);
        for (size_t i = 2 * come[me].size(); i < 8; ++i)
          rows[i] = -0.0f;
        expectOutput(session, "step", "now", mesh, at, rows);
        // Counts are data, and not believed: these send four of three rows.
        TESSERA_RETURN_IF_ERROR(session.writeInput(
            "step", "n",
            std::span<const int32_t>(std::vector<int32_t>{2, 1, 1, 1, 1, 1})));
        const Status status = session.run("step");
        EXPECT_NE(status.message().find(
                      "exchange_rows: sends 1 rows with member 2, 4 in "
                      "all, and has room for 3"),
                  std::string::npos)
            << status.message();
        return Status::success();
      });
}

//===--- four ranks, two axes, a loop -------------------------------------===//

// Groups of several axes, in an order of their own; sums in the turns of a
// loop.
TEST(PlannedRanks, AxesAndLoops) {
  const CompiledShare share(R"(
dist.mesh @mesh [#dist.axis<"data" = 2>, #dist.axis<"tensor" = 2>]
func.func @step(%x: tensor<3x5xf32> {graph.input = "x"})
    -> (tensor<5xf32> {graph.output = "sum"}, tensor<12x5xf32> {graph.output = "turned"}) {
  %zero = graph.constant dense<0.0> : tensor<5xf32>
  %sum = graph.loop 3 (%i, %acc = %zero) : (tensor<5xf32>) {
    %row = graph.dynamic_slice %x[%i] : tensor<3x5xf32>, tensor<i32> -> tensor<5xf32>
    %most = dist.all_reduce max %row over @mesh [#dist.axis_ref<"tensor">] : tensor<5xf32> -> tensor<5xf32>
    %both = dist.all_reduce sum %most over @mesh [#dist.axis_ref<"data">] : tensor<5xf32> -> tensor<5xf32>
    %next = graph.add %acc, %both : tensor<5xf32>
    graph.yield %next : tensor<5xf32>
  }
  %minus = graph.neg %x : tensor<3x5xf32>
  %turned = dist.all_gather %minus dim 0 over @mesh [#dist.axis_ref<"tensor">, #dist.axis_ref<"data">] : tensor<3x5xf32> -> tensor<12x5xf32>
  return %sum, %turned : tensor<5xf32>, tensor<12x5xf32>
}
)",
                            {0, 1, 2, 3});
  const Written written(share);
  std::vector<float> sum(5), turned;
  for (size_t i = 0; i < 15; ++i)
    for (int data : {0, 1})
      sum[i % 5] +=
          std::max(numbers(15, 2 * data)[i], numbers(15, 2 * data + 1)[i]);
  for (int rank : {0, 2, 1, 3})
    for (float value : numbers(15, rank))
      turned.push_back(-value);
  onRanks(written.reader,
          [&](hal::Session &session, const artifact::Mesh &mesh,
              const artifact::Coordinates &at) -> Status {
            const int me = static_cast<int>(at[0] * 2 + at[1]);
            TESSERA_RETURN_IF_ERROR(session.writeInput(
                "step", "x", std::span<const float>(numbers(15, me))));
            TESSERA_RETURN_IF_ERROR(session.run("step"));
            expectOutput(session, "step", "sum", mesh, at, sum);
            expectOutput(session, "step", "turned", mesh, at, turned);
            return Status::success();
          });
}

//===--- two ranks, packs -------------------------------------------------===//

// What travels together: sums in one buffer, pieces for each rank, and what
// they become. The gathered shares of sums are the sums.
TEST(PlannedRanks, Packs) {
  const CompiledShare share(R"(
dist.mesh @mesh [#dist.axis<"data" = 2>]
func.func @step(%x: tensor<4x6xf32> {graph.input = "x"}, %y: tensor<2x5xf32> {graph.input = "y"})
    -> (tensor<4x6xf32> {graph.output = "a"}, tensor<2x5xf32> {graph.output = "b"},
        tensor<4x6xf32> {graph.output = "c"}, tensor<2x5xf32> {graph.output = "d"}) {
  %u = graph.neg %x : tensor<4x6xf32>
  %v = graph.neg %y : tensor<2x5xf32>
  %a = dist.all_reduce sum %u over @mesh [#dist.axis_ref<"data">] : tensor<4x6xf32> -> tensor<4x6xf32>
  %b = dist.all_reduce sum %v over @mesh [#dist.axis_ref<"data">] : tensor<2x5xf32> -> tensor<2x5xf32>
  %m = dist.reduce_scatter sum %u dim 0 over @mesh [#dist.axis_ref<"data">] : tensor<4x6xf32> -> tensor<2x6xf32>
  %n = dist.reduce_scatter sum %v dim 0 over @mesh [#dist.axis_ref<"data">] : tensor<2x5xf32> -> tensor<1x5xf32>
  %c = dist.all_gather %m dim 0 over @mesh [#dist.axis_ref<"data">] : tensor<2x6xf32> -> tensor<4x6xf32>
  %d = dist.all_gather %n dim 0 over @mesh [#dist.axis_ref<"data">] : tensor<1x5xf32> -> tensor<2x5xf32>
  return %a, %b, %c, %d : tensor<4x6xf32>, tensor<2x5xf32>, tensor<4x6xf32>, tensor<2x5xf32>
}
)",
                            {0, 1}, /*isScheduled=*/true);
  const Written written(share);
  const artifact::Program &step =
      *written.reader.share().devices()->Get(0)->programs()->Get(0);
  size_t collectives = 0;
  for (const artifact::Node *node : *step.steps())
    collectives += node->step_as_Collective() != nullptr;
  EXPECT_EQ(collectives, 3u);
  onRanks(written.reader,
          [&](hal::Session &session, const artifact::Mesh &mesh,
              const artifact::Coordinates &at) -> Status {
            const int me = static_cast<int>(at[0]);
            for (int run = 0; run < 2; ++run) {
              TESSERA_RETURN_IF_ERROR(session.writeInput(
                  "step", "x", std::span<const float>(numbers(24, me))));
              TESSERA_RETURN_IF_ERROR(session.writeInput(
                  "step", "y", std::span<const float>(numbers(10, me + 2))));
              TESSERA_RETURN_IF_ERROR(session.run("step"));
            }
            for (auto [names, count, seed] :
                 {std::tuple("ac", 24, 0), std::tuple("bd", 10, 2)}) {
              std::vector<float> sum = numbers(count, seed);
              for (int i = 0; i < count; ++i)
                sum[i] = -(sum[i] + numbers(count, seed + 1)[i]);
              for (char name : llvm::StringRef(names))
                expectOutput(session, "step", llvm::StringRef(&name, 1), mesh,
                             at, sum);
            }
            return Status::success();
          });
}
