#include "compiler/api/ProgramMemory.h"
#include "llvm/ADT/STLExtras.h"

using namespace tessera;

const RankMemory &tessera::fullestRank(llvm::ArrayRef<RankMemory> all) {
  auto need = [](const RankMemory &each) {
    return std::pair(each.device != "cpu", each.total());
  };
  return *llvm::max_element(all, [&](const RankMemory &a, const RankMemory &b) {
    return need(a) < need(b);
  });
}

StatusOr<RankMemory> tessera::programMemory(CompileRequest request) {
  RankMemory fullest;
  request.onlyPlan = true;
  request.isTrial = true;
  request.accept = [&](llvm::ArrayRef<RankMemory> all) {
    fullest = fullestRank(all);
    return llvm::Error::success();
  };
  llvm::Expected<CompileSummary> summary = compile(request);
  if (!summary)
    return Status::error("{}", llvm::toString(summary.takeError()));
  return fullest;
}
