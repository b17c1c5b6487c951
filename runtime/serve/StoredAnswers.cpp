#include "runtime/serve/StoredAnswers.h"
#include "runtime/serve/Answers.h"

#include <algorithm>
#include <functional>
#include <random>

#include <nlohmann/json.hpp>

namespace tessera::serve {
namespace {

using Json = nlohmann::ordered_json;
using Answered = std::variant<std::string, ApiError>;

bool isAboutResponses(RouteId route) { return route <= RouteId::inputItems; }

std::string chatJson(const KeptAnswer &kept) {
  return withMember(kept.chat, "metadata", metadataJson(kept.metadata));
}

/// `{"id": …, ` and the rest of an item.
std::string itemJsonOf(const InputItem &item) {
  return fmt::format(R"({{"id":"{}",{})", item.id, item.json.substr(1));
}

/// An answer in a list, and whether it matches the query.
struct Listed {
  std::string_view id;
  std::function<std::string()> print;
  bool isAsked = true;
};

Answered pageOf(std::vector<Listed> all, const StoredQuery &query,
                bool ascending) {
  if (!query.ascending.value_or(ascending))
    std::ranges::reverse(all);
  auto next = all.begin();
  if (!query.after.empty()) {
    next = std::ranges::find(all, query.after, &Listed::id);
    if (next == all.end())
      return problem("after", "the list has no item with the id {}",
                     quote(query.after));
    ++next;
  }
  std::vector<const Listed *> page;
  bool hasMore = false;
  for (; next != all.end() && !hasMore; ++next) {
    hasMore = next->isAsked && page.size() == std::size_t(query.limit);
    if (next->isAsked && !hasMore)
      page.push_back(&*next);
  }
  std::string list;
  for (const Listed *each : page)
    list += (list.empty() ? "" : ",") + each->print();
  auto idOf = [&](const Listed *each) {
    return fmt::format(R"("{}")", each->id);
  };
  return fmt::format(R"({{"object":"list","data":[{}],"first_id":{},)"
                     R"("last_id":{},"has_more":{}}})",
                     list, page.empty() ? "null" : idOf(page.front()),
                     page.empty() ? "null" : idOf(page.back()), hasMore);
}

Answered listItems(const KeptAnswer &kept, const StoredQuery &query,
                   bool ascending) {
  std::vector<Listed> all;
  all.reserve(kept.input.size());
  for (const InputItem &item : kept.input)
    all.push_back({item.id, [&item] { return itemJsonOf(item); }});
  return pageOf(std::move(all), query, ascending);
}

Answered listChats(const StoredQuery &query, bool isModel,
                   const AnswerStore &store) {
  std::vector<Listed> all;
  auto has = [&](const KeptAnswer &kept) {
    return std::ranges::all_of(query.metadata, [&](const auto &wanted) {
      return std::ranges::count(kept.metadata, wanted) != 0;
    });
  };
  bool isOther = !query.model.empty() && !isModel;
  store.forEach([&](const KeptAnswer &kept) {
    if (!kept.response)
      all.push_back(
          {kept.id, [&kept] { return chatJson(kept); }, !isOther && has(kept)});
  });
  return pageOf(std::move(all), query, /*ascending=*/true);
}

Answered updateChat(std::string_view body, KeptAnswer &kept,
                    AnswerStore &store) {
  auto root = parseBody(body);
  if (const auto *error = std::get_if<ApiError>(&root))
    return *error;
  const auto &object = std::get<JsonValue>(root);
  for (const JsonValue::Member &member : object.members())
    if (member.name != "metadata")
      return problem(oneLine(member.name), "the field {} is not supported",
                     quote(member.name));
  if (object.members().empty())
    return problem("metadata", "metadata is missing");
  Metadata metadata;
  if (!object["metadata"].isNull())
    if (Problem found = readMetadata("metadata", object["metadata"], metadata))
      return *found;
  kept.metadata = std::move(metadata);
  std::string answer = chatJson(kept);
  store.weigh(std::string(kept.id)); // may evict it
  return answer;
}

Answered forget(std::string_view object, const std::string &id,
                AnswerStore &store) {
  if (auto running = store.find(id)->running)
    running->cancel();
  store.erase(id);
  return Json{{"id", id}, {"object", object}, {"deleted", true}}.dump();
}

Answered cancelResponse(KeptAnswer &kept) {
  if (!kept.response->background)
    return problem("response_id", "only a response that is made in the "
                                  "background can be cancelled");
  auto record = kept.response;
  if (auto running = kept.running)
    running->cancel();
  return responseJson(*record);
}

} // namespace

ApiError notStored(RouteId route, const std::string &id) {
  bool isResponse = isAboutResponses(route);
  return {404,
          fmt::format("no stored {} has the id {}: they are kept in "
                      "memory, and the oldest are evicted",
                      isResponse ? "response" : "chat", quote(id)),
          isResponse ? "response_id" : "completion_id", "not_found"};
}

Answered answerStored(RouteId route, const std::string &id,
                      const StoredQuery &query, std::string_view body,
                      bool isModel, AnswerStore &store) {
  if (route == RouteId::listChats)
    return listChats(query, isModel, store);
  KeptAnswer *kept = store.find(id);
  if (!kept || (kept->response != nullptr) != isAboutResponses(route))
    return notStored(route, id);
  switch (route) {
  case RouteId::response:
    return responseJson(*kept->response);
  case RouteId::deleteResponse:
    return forget("response", id, store);
  case RouteId::cancelResponse:
    return cancelResponse(*kept);
  case RouteId::inputItems:
    return listItems(*kept, query, /*ascending=*/false);
  case RouteId::storedChat:
    return chatJson(*kept);
  case RouteId::updateChat:
    return updateChat(body, *kept, store);
  case RouteId::deleteChat:
    return forget("chat.completion.deleted", id, store);
  default:
    return listItems(*kept, query, /*ascending=*/true);
  }
}

//===--- going on ---------------------------------------------------------===//

Problem goOn(ApiRequest &request, AnswerStore &store) {
  if (request.previousId.empty())
    return std::nullopt;
  const char *param = "previous_response_id";
  KeptAnswer *kept = store.find(request.previousId);
  if (!kept || !kept->response) {
    ApiError error = notStored(RouteId::response, request.previousId);
    error.param = param;
    return error;
  }
  const ResponseRecord &before = *kept->response;
  if (before.status != ResponseStatus::completed &&
      before.status != ResponseStatus::incomplete)
    return problem(param,
                   "the response {} is not complete and cannot be continued",
                   quote(request.previousId));
  std::vector<InputItem> items = kept->input;
  std::string list;
  for (const InputItem &item : items)
    list += (list.empty() ? "" : ",") + itemJsonOf(item);
  for (const OutputItem &item : before.output) {
    std::string json = itemJson(item);
    list += (list.empty() ? "" : ",") + json;
    // Without its id, which `InputItem` holds.
    Json bare = Json::parse(json);
    bare.erase("id");
    items.push_back({item.id, bare.dump()});
  }
  if (list.size() > kMaxTalkBytes)
    return problem(param,
                   "the conversation has more than {} bytes: begin a new one",
                   kMaxTalkBytes);
  auto parsed = JsonValue::parse("[" + list + "]", "stored items");
  if (!parsed.ok())
    return problem(param, "{}", parsed.message());
  ApiRequest earlier; // stores nothing
  if (Problem found = readItems(param, *parsed, earlier))
    return found;
  auto own = request.messages.begin() + (request.instructions ? 1 : 0);
  // The output of a call may follow it, and a call its message.
  request.messages.insert(own, earlier.messages.begin(),
                          earlier.messages.end());
  if (request.store)
    request.items.insert(request.items.begin(), items.begin(), items.end());
  return std::nullopt;
}

/// A rough upper bound of the bytes of a request until it is finished.
static std::size_t bytesOf(const ApiRequest &request) {
  std::size_t sum = 4096 + request.instructions.value_or("").size();
  for (const InputItem &item : request.items)
    sum += 128 + item.json.size();
  for (const ChatMessage &message : request.messages) {
    sum += sizeof(message) + message.content.size() + message.callId.size() +
           message.reasoning.size();
    for (const ToolCall &call : message.calls)
      sum += sizeof(call) + call.name.size() + call.arguments.size();
  }
  for (const Tool &tool : request.tools)
    sum += sizeof(tool) + 2 * tool.json.size();
  for (const auto &[name, text] : request.metadata)
    sum += name.size() + text.size();
  return sum;
}

Problem checkRoom(const ApiRequest &request, const AnswerStore &store) {
  if (!request.background)
    return std::nullopt;
  std::size_t bytes = bytesOf(request);
  if (bytes > store.room())
    return problem("background",
                   "a response of {} bytes exceeds the limit of all "
                   "background responses (--stored-bytes)",
                   bytes);
  if (bytes <= store.room() - std::min(store.room(), store.runningBytes()))
    return std::nullopt;
  return ApiError{429,
                  fmt::format("{} bytes of responses run in the "
                              "background, of at most {} (--stored-bytes); "
                              "wait for one, or cancel it",
                              store.runningBytes(), store.room()),
                  "background", "background_full"};
}

void numberItems(ApiRequest &request, std::string_view id) {
  bool isChat = request.endpoint == Endpoint::chat;
  std::string_view own = id.substr(isChat ? 0 : id.find('_') + 1);
  for (std::size_t i = 0; i < request.items.size(); ++i) {
    InputItem &item = request.items[i];
    auto is = [&](std::string_view type) {
      return item.json.starts_with(fmt::format(R"({{"type":"{}")", type));
    };
    if (!item.id.empty())
      continue;
    if (isChat)
      item.id = fmt::format("{}-{}", own, i);
    else
      item.id = fmt::format("{}_{}-in-{}",
                            is("function_call")          ? "fc"
                            : is("function_call_output") ? "fco"
                            : is("reasoning")            ? "rs"
                                                         : "msg",
                            own, i);
  }
}

std::string newAnswerId(Endpoint endpoint) {
  std::string_view prefix = endpoint == Endpoint::completions ? "cmpl-"
                            : endpoint == Endpoint::chat      ? "chatcmpl-"
                            : endpoint == Endpoint::messages  ? "msg_"
                            : endpoint == Endpoint::rerank    ? "rerank-"
                            : endpoint == Endpoint::score     ? "score-"
                                                              : "resp_";
  std::random_device device; // the system's own
  std::string id(prefix);
  for (int i = 0; i < 4; ++i)
    id += fmt::format("{:08x}", uint32_t(device()));
  return id;
}

std::string storeMetrics(const std::deque<AnswerStore> &stores) {
  std::size_t count = 0, bytes = 0;
  uint64_t evicted = 0;
  for (const AnswerStore &store : stores) {
    count += store.count();
    bytes += store.bytes();
    evicted += store.evicted();
  }
  auto print = [](std::string_view name, std::string_view type,
                  std::string_view help, uint64_t value) {
    return fmt::format("# HELP tessera:{0} {1}\n# TYPE tessera:{0} {2}\n"
                       "tessera:{0} {3}\n",
                       name, help, type, value);
  };
  return print("stored_answers", "gauge", "Stored responses and chats.",
               count) +
         print("stored_answer_bytes", "gauge",
               "Bytes of stored responses and chats.", bytes) +
         print("stored_answer_evictions_total", "counter",
               "Stored responses and chats that were evicted.", evicted);
}

} // namespace tessera::serve
