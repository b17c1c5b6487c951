// One device's programs become those of its rank of the pipeline.
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"
#include "passes/pipeline/Lower.h"
#include "passes/pipeline/StageEmitter.h"
#include "passes/pipeline/Stages.h"
#include "passes/sharding/Placement.h"

using namespace mlir;
using namespace tessera;
using namespace tessera::stages;

namespace tessera {
#define GEN_PASS_DEF_SPLITSTAGES
#include "passes/pipeline/Passes.h.inc"
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
    if (failed(schedule) || failed(split(mesh, *schedule)))
      return signalPassFailure();
    module->removeAttr(dist::kScheduleAttr);
    module->setAttr(dist::kPipelineAttr, describe(text));
    eraseUnused();
    // What microbatches share was made for each of them.
    OpPassManager cleanup(ModuleOp::getOperationName());
    cleanup.addPass(createCanonicalizerPass());
    cleanup.addPass(createCSEPass());
    if (failed(runPipeline(cleanup, module)))
      signalPassFailure();
  }

private:
  FailureOr<pipeline::Schedule> readSchedule(StringAttr text,
                                             dist::MeshOp mesh) {
    StatusOr<pipeline::Schedule> compute =
        pipeline::parseCsv(text.getValue(), "dist.schedule");
    // A permute ends when both have done it.
    pipeline::LowerOptions options;
    options.costs.asyncTransfers = false;
    StatusOr<pipeline::Schedule> lowered =
        compute.ok() ? pipeline::lower(*compute, options) : compute.status();
    if (!lowered.ok())
      return getOperation().emitError("schedule: ") << lowered.message();
    dist::AxisAttr axis = mesh.getAxis(dist::kPipeAxis);
    if (!axis || axis.getSize() != lowered->ranks)
      return getOperation().emitError("schedule: the table is for ")
             << lowered->ranks << " ranks, but the mesh has no axis pipe of "
             << "that size";
    return lowered.take();
  }

  // What stages take in a step; without training, what they take forward.
  void measure(ArrayRef<std::unique_ptr<ProgramCut>> cuts) {
    for (const auto &cut : cuts)
      if (cut->hasBlocks && (work.forward.empty() || cut->loop))
        work = cut->workOfStages();
  }

  DictionaryAttr describe(StringAttr schedule) {
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

  LogicalResult split(dist::MeshOp meshOp, const pipeline::Schedule &schedule) {
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
    measure(cuts);
    // All programs find the state at one place.
    StateRanks all = state;
    std::vector<ResultPlaces> places;
    for (auto &cut : cuts)
      places.emplace_back(*cut, state, all);
    for (auto &cut : cuts)
      addUnused(cut->function, schedule.ranks, all);
    int rank = static_cast<int>(
        mesh.coordinatesOf(device)[*mesh.find(dist::kPipeAxis)]);
    RankView view{meshOp, rank, schedule, all};
    for (auto [cut, place] : llvm::zip_equal(cuts, places)) {
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

  // State that no stage uses, such as the number of steps, is everywhere.
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

  // Blocks of other stages, and updates of their parameters.
  void eraseUnused() {
    for (bool erased = true; erased;) {
      erased = false;
      for (auto function :
           llvm::make_early_inc_range(getOperation().getOps<func::FuncOp>()))
        if (function.isPrivate() &&
            SymbolTable::symbolKnownUseEmpty(function, getOperation()))
          function.erase(), erased = true;
    }
  }

  ProgramCut::Work work;
};
} // namespace
