// Reads lines of JSON {"schema", "texts", "samples", "seed"}, or with "regex"
// or "grammar" in place of "schema"; answers each with
// {"error"} or {"matches": a bool for each text, "samples": random texts of the
// schema, token by token from masks}.
#include "runtime/infer/grammar/Gbnf.h"
#include "runtime/infer/grammar/GrammarGuide.h"
#include "runtime/infer/grammar/JsonSchema.h"
#include "runtime/infer/grammar/PlainTextGrammar.h"
#include "runtime/support/SplitMix64.h"

#include <iostream>

#include <nlohmann/json.hpp>

using namespace tessera;
using namespace tessera::grammar;
using Json = nlohmann::ordered_json; // properties have an order

static bool matches(const Grammar &grammar, const std::string &text) {
  Matcher matcher(grammar);
  Reached reached = matcher.start();
  for (char byte : text)
    reached = matcher.step(reached.positions, uint8_t(byte));
  return reached.ends && !matcher.overflowed();
}

/// Every byte, and tokens that reach over the ends of rules.
static std::shared_ptr<const Vocabulary> vocabulary() {
  std::vector<std::string> texts;
  for (int byte = 0; byte < 256; ++byte)
    texts.emplace_back(1, char(byte));
  for (const char *each :
       {"{\"",   "\":",    "\": ", "\",",  "\", \"", "\"}",     "}}",
        "]}",    "},",     "},{",  "true", "false,", "null}",   "12",
        "0,",    "1]",     "-",    ".5",   "e+",     "[[",      "[]",
        "{}",    "\n    ", "\n",   "  ",   "\"a\"",  "\"b\": ", "name",
        "\\u00", "é",      "\xC3", "ab",   "abc",    "\"]",     ", "})
    texts.emplace_back(each);
  return std::make_shared<Vocabulary>(texts);
}

/// A random text, which soon wants to end; empty if it did not.
static std::string sample(const std::shared_ptr<TokenGrammar> &grammar,
                          SplitMix64 &random) {
  auto end = int32_t(grammar->vocabulary().size());
  // The end is not in the vocabulary, so it is asked for apart.
  GrammarGuide guide(grammar, {});
  Matcher matcher(grammar->grammar());
  Reached reached = matcher.start();
  std::string text;
  for (int step = 0; step < 3000; ++step) {
    if (reached.ends && (guide.isComplete() || random() % 4 == 0))
      return text;
    auto mask = guide.allowed();
    if (!mask.ok())
      return "error: " + mask.message();
    std::vector<int32_t> choices;
    for (int32_t token = 0; token < end; ++token)
      if ((*mask)->contains(size_t(token)))
        for (int weight = std::string_view("\"}],0").find(
                              grammar->vocabulary().text(uint32_t(token))) !=
                                  std::string::npos
                              ? 40
                              : 1;
             weight > 0; --weight)
          choices.push_back(token);
    if (choices.empty())
      return "error: nothing may follow " + text;
    int32_t token = choices[random() % choices.size()];
    if (Status status = guide.accept(token); !status.ok())
      return "error: " + status.message();
    for (char byte : grammar->vocabulary().text(uint32_t(token)))
      reached = matcher.step(reached.positions, uint8_t(byte));
    text += grammar->vocabulary().text(uint32_t(token));
  }
  return {};
}

static StatusOr<Grammar> grammarOf(const Json &request) {
  if (request.contains("regex"))
    return grammarOfRegex(request["regex"].get<std::string>());
  if (request.contains("grammar"))
    return grammarOfGbnf(request["grammar"].get<std::string>());
  auto schema = JsonValue::parse(request["schema"].dump(), "schema");
  if (!schema.ok())
    return schema.status();
  return grammarOfJsonSchema(*schema);
}

static Json answer(const std::string &line) {
  Json request = Json::parse(line);
  auto grammar = grammarOf(request);
  if (!grammar.ok())
    return {{"error", grammar.message()}};
  Json result = {{"matches", Json::array()}, {"samples", Json::array()}};
  for (const auto &text : request["texts"])
    result["matches"].push_back(matches(*grammar, text));
  auto tokens = std::make_shared<TokenGrammar>(grammar.take(), vocabulary());
  SplitMix64 random(request["seed"].get<uint64_t>());
  for (int64_t i = 0; i < request["samples"]; ++i)
    result["samples"].push_back(sample(tokens, random));
  return result;
}

int main() {
  for (std::string line; std::getline(std::cin, line);)
    std::cout << answer(line).dump() << "\n";
}
