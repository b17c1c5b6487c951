#include "runtime/recipe/YamlDocument.h"
#include "runtime/support/Text.h"

#include <sstream>

#include <yaml-cpp/eventhandler.h>

namespace tessera::recipe {
namespace {

/// Remembers where the last document began.
class DocumentStart final : public YAML::EventHandler {
public:
  YAML::Mark mark;
  void OnDocumentStart(const YAML::Mark &at) override { mark = at; }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark &, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark &, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark &, const std::string &, YAML::anchor_t,
                const std::string &) override {}
  void OnSequenceStart(const YAML::Mark &, const std::string &, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark &, const std::string &, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}
};

} // namespace

// YAML::Load ignores what follows the first document, and YAML::LoadAll never
// returns on some inputs (",@"): it keeps producing empty documents.
YAML::Node loadOne(const std::string &text) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  DocumentStart start;
  if (parser.HandleNextDocument(start) && parser.HandleNextDocument(start))
    throw YAML::ParserException(start.mark, "something follows the document");
  return YAML::Load(text);
}

Status readYaml(std::string_view text, const std::string &file,
                const std::function<Status(const YAML::Node &)> &read) {
  try {
    return read(loadOne(std::string(text)));
  } catch (const YAML::Exception &problem) {
    return Status::error("{}:{}:{}: is not valid YAML: {}", file,
                         problem.mark.line + 1, problem.mark.column + 1,
                         oneLine(problem.msg));
  }
}

} // namespace tessera::recipe
