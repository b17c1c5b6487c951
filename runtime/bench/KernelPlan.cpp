#include "runtime/bench/KernelPlan.h"

#include "runtime/artifact/ElementTypes.h"

#include <algorithm>
#include <map>

namespace tessera::bench {
namespace {

using artifact::ArgT;
using artifact::FillT;
using artifact::LaunchT;
using artifact::LoopT;
using artifact::NodeT;
using artifact::ProgramT;
using artifact::Space;
using artifact::toView;
using Body = std::vector<std::unique_ptr<NodeT>>;

constexpr std::uint64_t kAlignment = 256;

/// A place in io inside of `loops` loops, the same in all iterations.
std::unique_ptr<ArgT> fixedIo(std::uint64_t offset, std::uint64_t bytes,
                              std::size_t loops) {
  auto arg = std::make_unique<ArgT>();
  arg->space = Space::io;
  arg->offset = offset;
  arg->bytes = bytes;
  arg->loop_strides.assign(loops, 0);
  return arg;
}

std::unique_ptr<NodeT> loopNode(std::uint64_t trip, Body body) {
  LoopT loop;
  loop.trip = trip;
  loop.body = std::move(body);
  auto node = std::make_unique<NodeT>();
  node->step.Set(std::move(loop));
  return node;
}

class Planner {
public:
  Planner(const artifact::DeviceCode &code, const KernelPlanOptions &options,
          std::uint64_t flushOffset)
      : code(code), options(options), flushOffset(flushOffset) {}
  /// `runs`: how often the body runs in one run of the program.
  Body rewrite(Body body, std::size_t loops, std::uint64_t runs);

  std::vector<Problem> problems;
  std::uint64_t events = 0;

private:
  void launch(std::unique_ptr<NodeT> node, std::size_t loops,
              std::uint64_t runs, Body &out);
  void timed(std::unique_ptr<NodeT> node, Problem &problem, std::size_t loops,
             std::uint64_t runs, Body &out);
  std::size_t problemOf(const LaunchT &launch, const std::string &origin,
                        bool &isNew);

  const artifact::DeviceCode &code;
  const KernelPlanOptions &options;
  std::uint64_t flushOffset;
  std::uint32_t steps = 0; // that the made program has so far
  std::map<std::vector<std::uint64_t>, std::size_t> known;
};

std::size_t Planner::problemOf(const LaunchT &launch, const std::string &origin,
                               bool &isNew) {
  std::vector<std::uint64_t> key = {launch.kernel};
  for (const auto &instance : launch.instances) {
    key.push_back(instance->blocks);
    key.insert(key.end(), instance->sizes.begin(), instance->sizes.end());
  }
  const auto [entry, inserted] = known.try_emplace(key, problems.size());
  isNew = inserted;
  if (isNew)
    problems.push_back({code.kernels()->Get(launch.kernel), origin});
  return entry->second;
}

void Planner::timed(std::unique_ptr<NodeT> node, Problem &problem,
                    std::size_t loops, std::uint64_t runs, Body &out) {
  const std::uint64_t trip = (options.repeats + runs - 1) / runs;
  const std::size_t inner = loops + (trip > 1);
  Body body;
  if (options.flushBytes) {
    FillT fill;
    fill.to = fixedIo(flushOffset, options.flushBytes, inner);
    auto flush = std::make_unique<NodeT>();
    flush->step.Set(std::move(fill));
    flush->origin = "flush";
    body.push_back(std::move(flush));
    ++steps;
  }
  problem.step = steps++;
  problem.repeats = trip * runs;
  events += problem.repeats * (body.size() + 1);
  for (auto &instance : node->step.AsLaunch()->instances)
    for (auto &arg : instance->args)
      arg->loop_strides.resize(inner, 0);
  body.push_back(std::move(node));
  if (trip > 1)
    out.push_back(loopNode(trip, std::move(body)));
  else
    std::move(body.begin(), body.end(), std::back_inserter(out));
}

void Planner::launch(std::unique_ptr<NodeT> node, std::size_t loops,
                     std::uint64_t runs, Body &out) {
  bool isNew = false;
  const std::size_t index =
      problemOf(*node->step.AsLaunch(), node->origin, isNew);
  Problem &problem = problems[index];
  problem.launches += runs;
  if (isNew && toView(problem.kernel->name()).find(options.filter) !=
                   std::string_view::npos)
    return timed(std::move(node), problem, loops, runs, out);
  ++steps;
  events += runs;
  out.push_back(std::move(node));
}

Body Planner::rewrite(Body body, std::size_t loops, std::uint64_t runs) {
  Body out;
  for (std::unique_ptr<NodeT> &node : body) {
    if (LoopT *loop = node->step.AsLoop()) {
      loop->body = rewrite(std::move(loop->body), loops + 1, runs * loop->trip);
      out.push_back(std::move(node));
    } else if (node->step.AsLaunch()) {
      launch(std::move(node), loops, runs, out);
    } else {
      ++steps;
      events += runs;
      out.push_back(std::move(node));
    }
  }
  return out;
}

void pack(const ProgramT &program, KernelPlan &plan) {
  flatbuffers::FlatBufferBuilder builder;
  builder.Finish(artifact::Program::Pack(builder, &program));
  plan.bytes = builder.Release();
  plan.program = flatbuffers::GetRoot<artifact::Program>(plan.bytes.data());
}

} // namespace

KernelPlan planKernels(const artifact::DeviceCode &code,
                       const artifact::Program &program,
                       const KernelPlanOptions &options) {
  KernelPlan plan;
  plan.flushOffset =
      (program.io_bytes() + kAlignment - 1) / kAlignment * kAlignment;
  ProgramT made;
  program.UnPackTo(&made);
  Planner planner(code, options, plan.flushOffset);
  made.steps = planner.rewrite(std::move(made.steps), 0, 1);
  made.io_bytes = plan.flushOffset + options.flushBytes;
  plan.problems = std::move(planner.problems);
  plan.events = planner.events;
  pack(made, plan);
  return plan;
}

KernelPlan planCopies(std::uint64_t bytes, std::uint64_t repeats) {
  KernelPlan plan;
  artifact::CopyT copy;
  copy.from = fixedIo(0, bytes, 1);
  copy.to = fixedIo(bytes, bytes, 1);
  auto node = std::make_unique<NodeT>();
  node->step.Set(std::move(copy));
  node->origin = "copy";
  Body body;
  body.push_back(std::move(node));
  ProgramT made;
  made.name = "copies";
  made.io_bytes = 2 * bytes;
  made.steps.push_back(loopNode(repeats, std::move(body)));
  plan.events = repeats;
  pack(made, plan);
  return plan;
}

} // namespace tessera::bench
