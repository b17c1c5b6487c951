// A rendezvous for each group of devices that takes part in collectives
// together: the last one to come computes for all.
#include "compiler/interpreter/MeshInterpreter.h"
#include "compiler/interpreter/Collectives.h"
#include "compiler/interpreter/Device.h"
#include "compiler/interpreter/Evaluators.h"
#include "compiler/interpreter/MeshGrid.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

using namespace mlir;
using namespace tessera;
using namespace tessera::dist;
using namespace tessera::interpreter;

namespace {

/// What all devices share. A device holds `turn` while it computes and hands
/// it on only where it waits, since contexts of MLIR need not be safe to be
/// used by several threads.
class Rendezvous {
public:
  explicit Rendezvous(MeshOp mesh) : grid(mesh), running(grid.deviceCount()) {}

  /// Waits until all of `group` have come; gives the result of its `place`th.
  llvm::Expected<Tensor> meet(std::unique_lock<std::mutex> &lock,
                              const std::vector<int64_t> &group, size_t place,
                              Operation *op, Operands operands) {
    // Who came before has left with an error, and its operands with it.
    if (stopped)
      return llvm::createStringError(reason);
    Meeting &meeting = meetings.try_emplace(group, group.size()).first->second;
    meeting.ops[place] = op;
    meeting.operands[place] = operands;
    int64_t round = meeting.round;
    if (++meeting.present == group.size())
      finish(meeting);
    else if (--running == 0)
      stop(hasEnded ? kWaitsForEnded
                    : "every device waits for others, one of them at " +
                          describe(op));
    changed.wait(lock, [&] { return meeting.round != round || stopped; });
    if (meeting.round == round)
      return llvm::createStringError(reason);
    return std::move(meeting.results[place]);
  }

  /// A device has ended; the others end too if it failed.
  void leave(bool failed) {
    if (failed)
      stop("another device has failed");
    else if (--running == 0 && waiting())
      stop(kWaitsForEnded);
    hasEnded = true;
  }

  const MeshGrid grid;
  std::mutex turn;

private:
  static inline const std::string kWaitsForEnded =
      "devices wait for one that has ended";

  struct Meeting {
    explicit Meeting(size_t size) : ops(size), operands(size) {}
    std::vector<Operation *> ops;
    std::vector<Operands> operands;
    Tensors results;
    size_t present = 0;
    int64_t round = 0;
  };

  static std::string describe(Operation *op) {
    return llvm::toString(fail(op, "no other device comes"));
  }

  bool waiting() const {
    return llvm::any_of(
        meetings, [](const auto &entry) { return entry.second.present > 0; });
  }

  void finish(Meeting &meeting) {
    llvm::Expected<Tensors> results = collect(meeting.ops, meeting.operands);
    if (!results)
      return stop(llvm::toString(results.takeError()));
    meeting.results = std::move(*results);
    running += static_cast<int64_t>(meeting.present) - 1;
    meeting.present = 0;
    ++meeting.round;
    changed.notify_all();
  }

  void stop(const std::string &why) {
    if (!stopped)
      reason = why;
    stopped = true;
    changed.notify_all();
  }

  std::map<std::vector<int64_t>, Meeting> meetings;
  std::condition_variable changed;
  int64_t running;       ///< devices that neither wait nor have ended
  bool hasEnded = false; ///< one has
  bool stopped = false;
  std::string reason; ///< why the first one could not go on
};

/// One device's place in the rendezvous.
class MeshDevice : public Device {
public:
  MeshDevice(Rendezvous &rendezvous, int64_t number,
             std::unique_lock<std::mutex> &lock)
      : rendezvous(rendezvous), number(number), lock(lock) {}

  llvm::Expected<Tensor> execute(Operation *op, Operands operands) override {
    auto axesOf = [](auto op) {
      return llvm::to_vector(op.getAxes().template getAsRange<AxisRefAttr>());
    };
    if (auto offset = dyn_cast<OffsetOp>(op)) {
      auto range = rendezvous.grid.rangeOf(
          number, static_cast<int64_t>(offset.getSize()), axesOf(offset));
      return Tensor({}, static_cast<double>(range.start));
    }
    std::vector<int64_t> group = rendezvous.grid.groupOf(
        number, axesOf(cast<CollectiveOpInterface>(op)));
    size_t place = llvm::find(group, number) - group.begin();
    return rendezvous.meet(lock, group, place, op, operands);
  }

private:
  Rendezvous &rendezvous;
  int64_t number;
  std::unique_lock<std::mutex> &lock;
};

} // namespace

MeshOp tessera::interpreter::meshOf(ModuleOp module) {
  auto meshes = module.getOps<MeshOp>();
  return meshes.empty() ? MeshOp() : *meshes.begin();
}

Tensor tessera::interpreter::offsetsOf(ModuleOp module, int64_t device) {
  std::vector<double> offsets;
  MeshGrid grid(meshOf(module));
  if (auto factors = module->getAttrOfType<ArrayAttr>(kOffsetsAttr))
    for (auto factor : factors.getAsRange<FactorAttr>())
      offsets.push_back(static_cast<double>(
          grid.rangeOf(device, factor.getSize(), factor.getAxes()).start));
  auto count = static_cast<int64_t>(offsets.size());
  return Tensor({count}, std::move(offsets));
}

llvm::Expected<std::vector<Tensors>> tessera::interpreter::interpretOnMesh(
    ArrayRef<ModuleOp> modules, StringRef function, ArrayRef<Tensors> inputs,
    const Options &options) {
  MeshOp mesh = modules.empty() ? MeshOp() : meshOf(modules.front());
  auto count = mesh ? static_cast<size_t>(mesh.getDeviceCount()) : 0;
  if (!mesh || modules.size() != count || inputs.size() != count)
    return llvm::createStringError(
        "a mesh of %zu devices needs a module and inputs for each, got %zu "
        "and %zu",
        count, modules.size(), inputs.size());
  Rendezvous rendezvous(mesh);
  std::vector<std::optional<Tensors>> results(count);
  std::string first;
  auto run = [&](size_t device) {
    std::unique_lock lock(rendezvous.turn);
    MeshDevice self(rendezvous, static_cast<int64_t>(device), lock);
    llvm::Expected<Tensors> own =
        interpretOn(self, modules[device], function, inputs[device], options);
    if (own)
      results[device] = std::move(*own);
    else if (std::string error = llvm::toString(own.takeError()); first.empty())
      first = "device " + std::to_string(device) + ": " + error;
    rendezvous.leave(!results[device]);
  };
  std::vector<std::thread> threads;
  for (size_t device = 0; device < count; ++device)
    threads.emplace_back(run, device);
  for (std::thread &thread : threads)
    thread.join();
  if (!first.empty())
    return llvm::createStringError(first);
  std::vector<Tensors> all;
  for (std::optional<Tensors> &own : results)
    all.push_back(std::move(*own));
  return all;
}
