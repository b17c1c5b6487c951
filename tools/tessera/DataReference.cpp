// tessera data reference: log-probabilities of packed documents by a model.
#include "runtime/generate/ReferenceScores.h"
#include "tools/tessera/Commands.h"
#include "tools/tessera/DataScoring.h"

#include <CLI/CLI.hpp>
#include <memory>

namespace tessera {

void addDataReference(CLI::App &data, Invocation &invocation) {
  auto arguments = std::make_shared<ScoringArguments>();
  CLI::App *command = data.add_subcommand(
      "reference", "Store log-probabilities of a packed dataset's tokens by a "
                   "reference model, for DPO and KTO");
  addScoringOptions(
      *command, *arguments,
      "run or model directory: usually what training begins with");
  command->callback([arguments, &invocation] {
    Status status =
        scoreDataset(*arguments, "data reference", "log-probabilities",
                     [&](PagedModel &model, const ReportDocuments &report) {
                       return scoreReference(arguments->dataset, model, report);
                     });
    if (!status.ok())
      invocation.fail(status.message().c_str());
  });
}

} // namespace tessera
