// A page with the attention weights of texts in elements of JSON.
import { AttentionPicture } from "./attention.js";

const texts = [...document.querySelectorAll("script.text")].map((element) => ({
  title: element.dataset.title,
  maps: () => JSON.parse(element.textContent),
}));
document.body.append(new AttentionPicture(texts).element);
