// The pass split-stages: one device's programs become those of its pipeline
// rank.
#include "passes/sharding/Placement.h"
#include "passes/stages/StageEmitter.h"
#include "passes/stages/Stages.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::stages;

namespace tessera {
#define GEN_PASS_DEF_SPLITSTAGES
#include "passes/stages/Passes.h.inc"
} // namespace tessera

namespace {
struct SplitStages : tessera::impl::SplitStagesBase<SplitStages> {
  using Base::Base;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    auto text = module->getAttrOfType<StringAttr>(dist::kScheduleAttr);
    auto meshes = module.getOps<dist::MeshOp>();
    if (!text || meshes.empty())
      return markAllAnalysesPreserved();
    dist::MeshOp mesh = *meshes.begin();
    FailureOr<pipeline::Schedule> schedule = readSchedule(text, mesh);
    if (failed(schedule) || failed(split(mesh, *schedule, text)))
      return signalPassFailure();
    module->removeAttr(dist::kScheduleAttr);
    module->setAttr(dist::kPipelineAttr, described);
  }

private:
  FailureOr<pipeline::Schedule> readSchedule(StringAttr text,
                                             dist::MeshOp mesh) {
    FailureOr<pipeline::Schedule> lowered =
        lowerTable(getOperation(), text.getValue());
    if (failed(lowered))
      return failure();
    if (lowered->forwardOnly)
      return getOperation().emitError("schedule: has only forwards, which is "
                                      "for loops before the step's");
    dist::AxisAttr axis = mesh.getAxis(dist::kPipeAxis);
    if (!axis || axis.getSize() != lowered->ranks)
      return getOperation().emitError("schedule: it is for ")
             << lowered->ranks << " ranks, but the mesh has no axis pipe of "
             << "that size";
    return lowered;
  }

  static bool hasBackwards(const ProgramCut &cut) {
    const LoopCut &last = *cut.loops.back();
    return last.loop && !last.schedule.forwardOnly;
  }

  // FLOPs of the stages in a step, loop after loop; without training, of their
  // forwards.
  void describe(ArrayRef<std::unique_ptr<ProgramCut>> cuts, StringAttr module) {
    const ProgramCut *step = nullptr;
    for (const auto &cut : cuts)
      if (!cut->loops.empty() && (!step || hasBackwards(*cut)))
        step = cut.get();
    Builder builder(&getContext());
    SmallVector<Attribute> before;
    DictionaryAttr last = describe(LoopCut::Work(), module);
    for (size_t i = 0; step && i < step->loops.size(); ++i) {
      LoopCut &loop = *step->loops[i];
      auto own = loop.loop
                     ? loop.loop->getAttrOfType<StringAttr>(dist::kScheduleAttr)
                     : StringAttr();
      last = describe(loop.workOfStages(), own ? own : module);
      if (i + 1 < step->loops.size())
        before.push_back(last);
    }
    NamedAttrList parts(last);
    if (!before.empty())
      parts.set("before", builder.getArrayAttr(before));
    described = parts.getDictionary(&getContext());
  }

  DictionaryAttr describe(const LoopCut::Work &work, StringAttr schedule) {
    Builder builder(&getContext());
    return builder.getDictionaryAttr(
        {builder.getNamedAttr("schedule", schedule),
         builder.getNamedAttr("forward",
                              builder.getDenseI64ArrayAttr(work.forward)),
         builder.getNamedAttr("backward",
                              builder.getDenseI64ArrayAttr(work.backward)),
         builder.getNamedAttr("weights",
                              builder.getDenseI64ArrayAttr(work.weights))});
  }

  LogicalResult split(dist::MeshOp meshOp, const pipeline::Schedule &schedule,
                      StringAttr text) {
    sharding::Mesh mesh(meshOp);
    if (device < 0 || device >= mesh.deviceCount())
      return getOperation().emitError("device ")
             << device << " is not in the mesh of " << mesh.deviceCount();
    std::vector<std::unique_ptr<ProgramCut>> cuts;
    StateRanks state;
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      if (!function.isPublic())
        continue;
      ProgramCut &cut =
          *cuts.emplace_back(std::make_unique<ProgramCut>(function, schedule));
      if (failed(cut.build()))
        return failure();
      addState(cut, state);
    }
    describe(cuts, text);
    // State is on the same ranks in all programs.
    StateRanks all = state;
    std::vector<ResultLocations> locations;
    for (auto &cut : cuts)
      locations.emplace_back(*cut, state, all);
    for (auto &cut : cuts)
      addUnused(cut->function, schedule.ranks, all);
    int rank = static_cast<int>(
        mesh.coordinatesOf(device)[*mesh.find(dist::kPipeAxis)]);
    RankView view{meshOp, rank, all};
    for (auto [cut, place] : llvm::zip_equal(cuts, locations)) {
      place.finish(all);
      if (failed(StageEmitter(*cut, place, view).run()))
        return failure();
    }
    return success();
  }

  static void addState(ProgramCut &cut, StateRanks &state) {
    for (auto [i, ranks] : llvm::enumerate(cut.users))
      if (auto name =
              cut.function.getArgAttrOfType<StringAttr>(i, graph::kStateAttr);
          name && ranks.any())
        state.try_emplace(name.getValue(), ranks.size()).first->second |= ranks;
  }

  // State that no stage uses, such as the step count, is on all ranks.
  static void addUnused(func::FuncOp function, int ranks, StateRanks &state) {
    auto add = [&](StringAttr name) {
      if (name)
        state.try_emplace(name.getValue(), ranks, true);
    };
    for (unsigned i = 0; i < function.getNumArguments(); ++i)
      add(function.getArgAttrOfType<StringAttr>(i, graph::kStateAttr));
    for (unsigned i = 0; i < function.getNumResults(); ++i)
      add(function.getResultAttrOfType<StringAttr>(i, graph::kStateAttr));
  }

  DictionaryAttr described; ///< the attribute dist.pipeline
};
} // namespace
