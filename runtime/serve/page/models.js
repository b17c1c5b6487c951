// The served model, its other names and its adapters; which of them answers.
import {getJson} from "./api.js";
import {at, make} from "./dom.js";

let models = [];

export const chosenModel = () => at("model").value;
export const modelOf = id => models.find(each => each.id === id);
export const adapterCount = () => models.filter(each => each.parent).length;

export function chooseModel(id) {
  if (modelOf(id)) at("model").value = id;
}

const optionOf = ({id, root}) => make("option", {value: id, title: root}, id);

// Adapters may come and go while the server runs.
export async function loadModels() {
  const {data} = await getJson("v1/models");
  const before = chosenModel(), isSame = JSON.stringify(data) === JSON.stringify(models);
  models = data;
  if (isSame) return data;
  const own = data.filter(each => !each.parent), adapters = data.filter(each => each.parent);
  at("model").replaceChildren(...(adapters.length
    ? [make("optgroup", {label: "Model"}, ...own.map(optionOf)), make("optgroup", {label: "Adapters"}, ...adapters.map(optionOf))]
    : own.map(optionOf)));
  chooseModel(before);
  at("model").disabled = data.length < 2;
  return data;
}
