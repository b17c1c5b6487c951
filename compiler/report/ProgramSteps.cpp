#include "compiler/report/ProgramSteps.h"

#include <algorithm>

#include "runtime/artifact/ElementTypes.h"

namespace tessera::report {

using artifact::toView;

namespace {

using Nodes = flatbuffers::Vector<flatbuffers::Offset<artifact::Node>>;

class Walk {
public:
  Walk(const ReportInput &input, const artifact::DeviceCode &code)
      : input(input), code(code) {}
  void nodes(const Nodes &list, std::uint64_t runs);
  std::vector<StepView> steps;

private:
  void cost(StepView &step) const;

  const ReportInput &input;
  const artifact::DeviceCode &code;
  std::uint32_t number = 0;
};

void Walk::cost(StepView &step) const {
  const artifact::Node &node = *step.node;
  if (const auto *launch = node.step_as_Launch()) {
    const artifact::Kernel &kernel = *code.kernels()->Get(launch->kernel());
    step.flops = double(kernel.flops()) * double(launch->instances()->size());
    step.bytes = double(artifact::launchBytes(*launch, kernel));
    step.seconds = input.clock.seconds(*launch, kernel);
  } else if (const auto *copy = node.step_as_Copy()) {
    step.bytes = 2 * double(copy->to()->bytes());
    step.seconds = input.clock.copySeconds(double(copy->to()->bytes()));
  } else if (const auto *fill = node.step_as_Fill()) {
    step.bytes = double(fill->to()->bytes());
    step.seconds = input.clock.fillSeconds(step.bytes);
  } else if (const auto *one = node.step_as_Collective()) {
    step.bytes = double(std::max(one->from()->bytes(), one->to()->bytes()));
    step.seconds = input.clock.seconds(*one, membersOf(input.root, *one));
  }
}

void Walk::nodes(const Nodes &list, std::uint64_t runs) {
  for (const artifact::Node *node : list) {
    StepView step{.node = node, .begin = number, .end = number, .runs = runs};
    ++number;
    cost(step);
    const std::size_t at = steps.size();
    steps.push_back(step);
    if (const auto *loop = node->step_as_Loop()) {
      nodes(*loop->body(), runs * loop->trip());
      steps[at].end = number++;
    }
  }
}

/// Numbers strings in order of first use.
class Names {
public:
  std::size_t of(std::string name) {
    const auto [entry, isNew] = numbers.try_emplace(name, list.size());
    if (isNew)
      list.push_back(std::move(name));
    return entry->second;
  }
  Json list = Json::array();

private:
  std::map<std::string, std::size_t> numbers;
};

} // namespace

const artifact::DeviceCode &deviceOf(const ReportInput &input,
                                     const artifact::Share &share) {
  for (const artifact::DeviceCode *code : *share.devices())
    if (toView(code->device()) == input.device)
      return *code;
  return *share.devices()->Get(0);
}

std::vector<StepView> stepsOf(const ReportInput &input,
                              const artifact::DeviceCode &code,
                              const artifact::Program &program) {
  Walk walk(input, code);
  walk.nodes(*program.steps(), 1);
  return std::move(walk.steps);
}

double membersOf(const artifact::Artifact &root,
                 const artifact::Collective &one) {
  double members = 1;
  for (const std::uint32_t axis : *one.axes())
    members *= root.mesh()->Get(axis)->size();
  return members;
}

std::string nameOf(const artifact::DeviceCode &code,
                   const artifact::Node &node) {
  if (const auto *launch = node.step_as_Launch())
    return std::string(toView(code.kernels()->Get(launch->kernel())->name()));
  if (const auto *loop = node.step_as_Loop())
    return fmt::format("loop of {}", loop->trip());
  if (const auto *one = node.step_as_Collective())
    return artifact::EnumNameCollectiveKind(one->kind());
  return node.step_as_Copy() ? "copy" : node.step_as_Fill() ? "fill" : "wait";
}

bool isUpdate(const artifact::Share &share, const artifact::DeviceCode &code,
              const artifact::Node &node) {
  const auto *launch = node.step_as_Launch();
  if (!launch)
    return false;
  const auto &access = *code.kernels()->Get(launch->kernel())->access();
  const artifact::Instance &first = *launch->instances()->Get(0);
  for (flatbuffers::uoffset_t i = 0; i < first.args()->size(); ++i) {
    const artifact::Arg &arg = *first.args()->Get(i);
    if (arg.space() != artifact::Space::state ||
        access.Get(i) == artifact::Access::read)
      continue;
    for (const artifact::Tensor *tensor : *share.state())
      if (tensor->offset() <= arg.offset() &&
          arg.offset() < tensor->offset() + tensor->bytes())
        return tensor->role() == artifact::Role::parameter ||
               tensor->role() == artifact::Role::optimizer;
  }
  return false;
}

Json stepsJson(const artifact::DeviceCode &code,
               const std::vector<StepView> &steps) {
  std::uint32_t count = 0;
  for (const StepView &step : steps)
    count = std::max(count, step.end + 1);
  Names names, origins;
  std::vector<std::size_t> name(count), origin(count);
  std::vector<std::int32_t> layer(count, -1);
  std::vector<int> backward(count);
  std::vector<std::uint64_t> runs(count, 1);
  for (const StepView &step : steps)
    for (const std::uint32_t number : {step.begin, step.end}) {
      name[number] = names.of(nameOf(code, *step.node));
      origin[number] = origins.of(std::string(toView(step.node->origin())));
      layer[number] = step.node->layer();
      backward[number] = step.node->backward();
      runs[number] = step.runs;
    }
  return {{"count", count},       {"names", std::move(names.list)},
          {"name", name},         {"origins", std::move(origins.list)},
          {"origin", origin},     {"layer", layer},
          {"backward", backward}, {"runs", runs}};
}

} // namespace tessera::report
