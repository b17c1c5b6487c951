#include "runtime/hal/cpu/CodeObject.h"

#include "runtime/artifact/ElementTypes.h"

namespace tessera::hal {
namespace {

using artifact::CodeObject;
using artifact::toView;

constexpr std::string_view kTargetPrefix = "cpu:";

std::string missingFeatures(const CodeObject &code, const CpuFeatures &cpu) {
  std::string missing;
  for (const flatbuffers::String *feature : *code.features())
    if (!cpu.has(toView(feature)))
      missing.append(missing.empty() ? "" : ", ").append(toView(feature));
  return missing;
}

bool isTarget(std::string_view target, std::string_view wanted) {
  return target == wanted || (target.starts_with(kTargetPrefix) &&
                              target.substr(kTargetPrefix.size()) == wanted);
}

} // namespace

StatusOr<const CodeObject *>
chooseCodeObject(const ArtifactReader &artifact,
                 const artifact::DeviceCode &device, const CpuFeatures &cpu,
                 std::string_view forced) {
  std::string targets, reasons;
  for (const CodeObject *code : *device.code()) {
    const std::string_view target = toView(code->target());
    targets.append(targets.empty() ? "" : ", ").append(target);
    if (!target.starts_with(kTargetPrefix) ||
        (!forced.empty() && !isTarget(target, forced)))
      continue;
    const std::string missing = missingFeatures(*code, cpu);
    if (missing.empty())
      return code;
    reasons += fmt::format("{}{} needs {}", reasons.empty() ? "" : "; ", target,
                           missing);
  }
  if (reasons.empty() && !forced.empty())
    return Status::error("{}: no code for the target '{}': the artifact has {}",
                         artifact.path(), forced,
                         targets.empty() ? "none" : targets);
  if (reasons.empty())
    return Status::error("{}: no code for a CPU: the artifact has {}",
                         artifact.path(), targets.empty() ? "none" : targets);
  return Status::error("{}: no code for this processor ({}), which lacks "
                       "features: {}; rebuild it for a target that fits: {}",
                       artifact.path(), CpuFeatures::brand(), reasons,
                       toView(artifact.root().rebuild_command()));
}

} // namespace tessera::hal
