#include "compiler/target/cuda/sass/ProgramBounds.h"

#include <algorithm>

namespace tessera::sass {
namespace {

using Nodes = flatbuffers::Vector<flatbuffers::Offset<artifact::Node>>;

/// Sizes and blocks of all instances: buffers are aligned alike.
bool isSame(const artifact::Launch &a, const artifact::Launch &b) {
  if (a.instances()->size() != b.instances()->size())
    return false;
  for (std::uint32_t i = 0; i < a.instances()->size(); ++i) {
    const artifact::Instance &x = *a.instances()->Get(i),
                             &y = *b.instances()->Get(i);
    if (x.blocks() != y.blocks() || !x.sizes() != !y.sizes() ||
        (x.sizes() && !std::equal(x.sizes()->begin(), x.sizes()->end(),
                                  y.sizes()->begin(), y.sizes()->end())))
      return false;
  }
  return true;
}

class Collector {
public:
  explicit Collector(const artifact::DeviceCode &code) : code(code) {}
  void nodes(const Nodes &nodes, double times);
  PlannedLaunches result;

private:
  void add(std::uint32_t kernel, const PlannedLaunch &one);
  const artifact::DeviceCode &code;
};

void Collector::add(std::uint32_t kernel, const PlannedLaunch &one) {
  std::vector<PlannedLaunch> &launches = result[kernel];
  for (PlannedLaunch &known : launches)
    if (isSame(*known.launch, *one.launch)) {
      known.times += one.times;
      return;
    }
  launches.push_back(one);
}

void Collector::nodes(const Nodes &nodes, double times) {
  for (const artifact::Node *node : nodes) {
    if (const auto *loop = node->step_as_Loop())
      this->nodes(*loop->body(),
                  loop->count() ? 0 : times * double(loop->trip()));
    const auto *launch = node->step_as_Launch();
    if (!launch)
      continue;
    add(launch->kernel(), {launch, 0, times});
    if (const auto *variants =
            code.kernels()->Get(launch->kernel())->variants())
      for (const artifact::Variant *variant : *variants)
        add(variant->kernel(), {launch, variant->blocks(), times});
  }
}

} // namespace

PlannedLaunches launchesOf(const artifact::DeviceCode &code,
                           const artifact::Program &program) {
  Collector collector(code);
  collector.nodes(*program.steps(), 1);
  return std::move(collector.result);
}

KernelBound meanBound(const artifact::Kernel &kernel,
                      const std::vector<PlannedLaunch> &launches,
                      const Function &function, const hardware::Chip &chip) {
  KernelBound longest;
  double times = 0, roofline = 0, latency = 0, most = -1;
  for (const PlannedLaunch &one : launches) {
    KernelBound bound =
        boundOf(kernel, *one.launch, one.blocks, function, chip);
    if (!bound.unknown.empty())
      return bound;
    // Launches of a loop whose length comes from memory count once.
    const double weight = std::max(one.times, 1.0);
    times += weight;
    roofline += weight * bound.roofline;
    latency += weight * bound.latency;
    if (const double time = weight * std::max(bound.roofline, bound.latency);
        time > most) {
      most = time;
      longest = std::move(bound);
    }
  }
  longest.roofline = roofline / std::max(times, 1.0);
  longest.latency = latency / std::max(times, 1.0);
  return longest;
}

} // namespace tessera::sass
