#include "compiler/DeviceKinds.h"
#include "compiler/target/cpu/CpuTarget.h"
#include "hardware/Targets.h"
#include "passes/kernels/Tiling.h"
#include "llvm/ADT/STLExtras.h"
#include <span>

using namespace mlir;
using namespace tessera;

constexpr llvm::StringLiteral kCpu = "cpu", kNative = "cpu:native";

std::string tessera::acceptedTargets() {
  return "cpu:native (that of this processor), " + knownTargets();
}

llvm::Expected<std::vector<std::string>>
tessera::resolveTargets(llvm::ArrayRef<std::string> names) {
  std::vector<std::string> targets;
  auto add = [&](const std::string &target) {
    if (!llvm::is_contained(targets, target))
      targets.push_back(target);
  };
  for (std::string name : names) {
    const bool isNative = name == kNative;
    if (isNative && (name = cpu::nativeTarget()).empty())
      name = kCpu;
    if (name == kCpu)
      for (const TileTarget &target : cpuTileTargets())
        add(target.name);
    else if (lookupTileTarget(name))
      add(name);
    else if (isNative)
      return llvm::createStringError("TESSERA_CPU in the environment: unknown "
                                     "target '" +
                                     name + "'");
    else
      return llvm::createStringError("unknown target '" + name +
                                     "'; expected one of " + acceptedTargets());
  }
  return targets;
}

std::vector<DeviceKind> tessera::kindsOf(llvm::ArrayRef<std::string> targets) {
  std::vector<DeviceKind> kinds;
  for (const std::string &target : targets) {
    std::string name =
        llvm::StringRef(target).starts_with("cpu:") ? kCpu.str() : target;
    auto kind = llvm::find_if(
        kinds, [&](const DeviceKind &k) { return k.name == name; });
    if (kind == kinds.end())
      kind = kinds.insert(kind, DeviceKind{name, {}});
    kind->targets.push_back(target);
  }
  return kinds;
}

std::vector<std::string> tessera::targetsOf(ModuleOp module) {
  std::vector<std::string> targets;
  if (auto planned = module->getAttrOfType<ArrayAttr>(kTargetsAttr))
    for (auto name : planned.getAsRange<StringAttr>())
      if (lookupTileTarget(name.getValue()))
        targets.push_back(name.getValue().str());
  for (auto nested : module.getOps<ModuleOp>())
    if (auto name = nested->getAttrOfType<StringAttr>(kTargetAttr);
        name && lookupTileTarget(name.getValue()))
      targets.push_back(name.getValue().str());
  return targets;
}
