// What a report says of small artifacts, against counts by hand.
#include <gtest/gtest.h>

#include "compiler/report/Layers.h"
#include "compiler/report/MemoryUse.h"
#include "compiler/report/ProgramReport.h"
#include "compiler/report/ShardingMap.h"
#include "compiler/report/Simulation.h"
#include "test/runtime/artifact/MeshArtifact.h"

using namespace tessera;
using namespace tessera::report;
using namespace tessera::test;

namespace {

/// A kernel takes a second for each byte, a message one second and nothing for
/// its bytes.
Machine slowMachine() {
  Machine machine;
  machine.name = "test";
  machine.bytes = 1;
  machine.link = {.bytes = 1e30, .latency = 1};
  return machine;
}

class Report : public testing::Test {
protected:
  void pack(const ArtifactT &artifact) {
    bytes = std::make_unique<AlignedBytes>(test::pack(artifact));
    auto reader = ArtifactReader::fromBytes(bytes->span(), "test");
    ASSERT_TRUE(reader.ok()) << reader.message();
  }
  const Artifact &root() const { return *GetArtifact(bytes->span().data()); }
  ReportInput input() const { return {root(), clock, "cpu"}; }
  const Program &program() const {
    return *root().shares()->Get(0)->devices()->Get(0)->programs()->Get(0);
  }
  StepClock clock{slowMachine(), nullptr};

private:
  std::unique_ptr<AlignedBytes> bytes;
};

BufferT buffer(BufferUse use, std::uint64_t offset, std::uint64_t bytes,
               std::uint32_t first, std::uint32_t last) {
  BufferT buffer;
  buffer.use = use;
  buffer.shape = {std::int64_t(bytes) / 4};
  buffer.offset = offset;
  buffer.bytes = bytes;
  buffer.first = first;
  buffer.last = last;
  return buffer;
}

} // namespace

// fill 0, loop 1 to 3 around a launch, launch 4, copy 5.
TEST_F(Report, StepsAreNumberedAsTheCompilerDoes) {
  pack(smallArtifact());
  const auto steps =
      stepsOf(input(), deviceOf(input(), *root().shares()->Get(0)), program());
  ASSERT_EQ(steps.size(), 5u);
  EXPECT_EQ(steps[1].begin, 1u);
  EXPECT_EQ(steps[1].end, 3u);
  EXPECT_EQ(steps[2].begin, 2u);
  EXPECT_EQ(steps[2].runs, 4u);
  EXPECT_EQ(steps[4].begin, 5u);
  EXPECT_EQ(steps[0].seconds, 64);     // written
  EXPECT_EQ(steps[4].seconds, 2 * 64); // read and written
}

TEST_F(Report, ThePeakIsTheFullestStep) {
  ArtifactT artifact = smallArtifact();
  cpu(artifact).programs[0]->buffers =
      owned<BufferT>({buffer(BufferUse::workspace, 0, 32, 0, 2),
                      buffer(BufferUse::activations, 64, 64, 2, 4),
                      buffer(BufferUse::gradients, 0, 16, 4, 5)});
  pack(artifact);
  const MemoryPeak peak = peakOf(program());
  EXPECT_EQ(peak.step, 2u);
  EXPECT_EQ(peak.bytes, 96u);
  EXPECT_EQ(peak.alive, (std::vector<std::uint32_t>{1, 0}));
  const Json json = memoryJson(*root().shares()->Get(0), program());
  EXPECT_TRUE(json["known"].get<bool>());
  EXPECT_EQ(json["state"]["parameter"], 64);
  EXPECT_EQ(json["uses"][json["buffers"]["use"][2].get<int>()], "gradients");
}

TEST_F(Report, AnOldArtifactHasNoBuffers) {
  pack(smallArtifact());
  EXPECT_FALSE(
      memoryJson(*root().shares()->Get(0), program())["known"].get<bool>());
}

TEST_F(Report, LayersHaveTheirStepsAndParameters) {
  ArtifactT artifact = smallArtifact();
  share(artifact).state[0]->name = "h.7.w";
  auto &steps = cpu(artifact).programs[0]->steps;
  steps[0]->layer = 7;
  steps[3]->layer = 7;
  steps[3]->backward = true;
  pack(artifact);
  const auto rows = layerRows(input(), "train_step");
  auto row = std::ranges::find(rows, 7, &LayerRow::layer);
  ASSERT_NE(row, rows.end());
  EXPECT_EQ(row->parameters, 16u);
  EXPECT_EQ(row->seconds, 64 + 2 * 64);
  ASSERT_EQ(row->parts.size(), 2u);
  EXPECT_TRUE(row->parts[1].backward);
  EXPECT_NE(std::ranges::find(rows, "optimizer", &LayerRow::name), rows.end());
}

TEST(Layers, NumbersInNames) {
  EXPECT_EQ(layerInName("transformer.h.3.attn.weight"), 3);
  EXPECT_EQ(layerInName("model.layers.12.mlp.experts.4.up"), 12);
  EXPECT_EQ(layerInName("lm_head.weight"), -1);
  EXPECT_EQ(layerInName("3x.y"), -1);
}

TEST(Layers, EqualOnesAreGrouped) {
  std::vector<LayerRow> rows(5);
  for (int i = 0; i < 5; ++i) {
    rows[i].layer = i - 1; // the first is outside of the layers
    rows[i].kernels = {i == 4 ? "other" : "same"};
  }
  EXPECT_EQ(equalLayers(rows),
            (std::vector<std::pair<std::size_t, std::size_t>>{
                {0, 0}, {1, 3}, {4, 4}}));
}

// All ranks meet in each collective; the time of a group is that of its
// slowest.
TEST_F(Report, CollectivesWaitForAllMembers) {
  pack(meshArtifact());
  auto timeline = simulate(input(), "step");
  ASSERT_TRUE(timeline.ok()) << timeline.message();
  ASSERT_EQ(timeline->lanes.size(), root().shares()->size());
  for (const Lane &lane : timeline->lanes) {
    EXPECT_GT(lane.collectives, 0);
    double end = 0;
    for (const StepEvent &event : lane.events)
      if (event.collective) {
        EXPECT_GE(event.start, end); // one stream
        end = event.start + event.duration;
      }
    EXPECT_LE(end, timeline->makespan);
  }
  // Their starts agree over the shares: they meet.
  auto starts = [](const Lane &lane) {
    std::vector<double> list;
    for (const StepEvent &event : lane.events)
      if (event.collective)
        list.push_back(event.start);
    return list;
  };
  EXPECT_EQ(starts(timeline->lanes[0]).size(),
            starts(timeline->lanes[1]).size());
  EXPECT_EQ(starts(timeline->lanes[0])[0], starts(timeline->lanes[1])[0]);
}

TEST_F(Report, LoopsAreUnrolledInTime) {
  pack(smallArtifact());
  auto timeline = simulate(input(), "train_step");
  ASSERT_TRUE(timeline.ok()) << timeline.message();
  double sum = 0;
  for (const StepView &step :
       stepsOf(input(), deviceOf(input(), *root().shares()->Get(0)), program()))
    sum += double(step.runs) * step.seconds;
  EXPECT_DOUBLE_EQ(timeline->makespan, sum);
  EXPECT_EQ(timeline->lanes[0].events.size(), 1u + 4 + 1 + 1);
  EXPECT_EQ(timeline->leftOut, 0u);
  EXPECT_FALSE(simulate(input(), "nothing").ok());
}

TEST_F(Report, TheTraceIsOfAllSteps) {
  pack(smallArtifact());
  auto timeline = simulate(input(), "train_step");
  ASSERT_TRUE(timeline.ok());
  const Json trace =
      Json::parse(traceText(input(), {{"train_step", *timeline}}));
  std::size_t spans = 0;
  for (const Json &event : trace["traceEvents"])
    spans += event["ph"] == "X";
  EXPECT_EQ(spans, 7u);
}

// Ranks 0 and 1 have three of eight rows each, rank 2 the rest.
TEST_F(Report, RegionsCoverATensor) {
  pack(meshArtifact());
  std::string name;
  for (const Tensor *tensor : *root().shares()->Get(0)->state())
    if (tensor->cuts() && tensor->cuts()->size() == 2)
      name = tensor->name()->str();
  ASSERT_FALSE(name.empty());
  const auto regions = regionsOf(root(), name);
  ASSERT_EQ(regions.size(), 3u);
  std::uint64_t next = 0;
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(regions[rank].ranks, std::vector<std::uint32_t>{rank});
    ASSERT_EQ(regions[rank].dims.size(), 2u);
    EXPECT_EQ(regions[rank].dims[0][0].start, next);
    next += regions[rank].dims[0][0].size;
    EXPECT_EQ(regions[rank].dims[1][0].size, 4u);
  }
  EXPECT_EQ(next, 8u);
  EXPECT_EQ(shardingJson(root())["ranks"], 3);
}

TEST_F(Report, HasAProgramForEachOfTheArtifact) {
  pack(smallArtifact());
  auto json = programReport(input(), "x", {});
  ASSERT_TRUE(json.ok()) << json.message();
  EXPECT_EQ((*json)["programs"].size(), 1u);
  EXPECT_EQ((*json)["programs"][0]["shares"][0]["kernels"].size(), 2u);
  EXPECT_TRUE((*json)["sharding"].is_null());
  EXPECT_FALSE(json->contains("ir"));
}

TEST(Machine, ReadsMeasuredKernels) {
  auto read = parseMeasurements(
      R"({"device":"cpu","target":"cpu:avx2","program":"train_step",
          "copy_bytes_per_second":2e10,"peaks":{"fp32":1e11},
          "kernels":[{"name":"a","seconds":1.0,"launches":1},
                     {"name":"a","seconds":4.0,"launches":2}]})",
      "times.json");
  ASSERT_TRUE(read.ok()) << read.message();
  EXPECT_DOUBLE_EQ(read->seconds["a"], 3);
  EXPECT_DOUBLE_EQ(read->machine.bytes, 2e10);
  for (const char *wrong : {"", "{}", "[1]", R"({"kernels":3,"peaks":{}})",
                            R"({"kernels":[{}],"peaks":{}})"})
    EXPECT_FALSE(parseMeasurements(wrong, "times.json").ok()) << wrong;
}
