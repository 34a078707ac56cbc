// Colours by what they say: purple, alone takes less than in the step; orange, it takes more.
// PuOr of ColorBrewer: told apart by colour-blind people, and the sign is printed as well.

import { scaleLinear } from "d3-scale";
import { interpolateLab } from "d3-interpolate";

const PALETTES = {
  light: {
    diverging: ["#5e3c99", "#b2abd2", "#f1f1ef", "#fdb863", "#e66101"],
    sequential: ["#eef3f8", "#1d5c96"],
    bounds: { compute: "#1d5c96", bandwidth: "#7fb3d9", latency: "#f0c987", host: "#d98c3f",
      sync: "#b2abd2", communication: "#7a5aa8" },
  },
  dark: {
    diverging: ["#a894ee", "#5d5390", "#2c3038", "#855a26", "#f39a3d"],
    sequential: ["#242a33", "#6cb1ee"],
    bounds: { compute: "#4a90d0", bandwidth: "#27567f", latency: "#8a6a33", host: "#c9772c",
      sync: "#6b6196", communication: "#a894ee" },
  },
};
const FULL = 3; // doublings from the middle to the end of the scale: 8 times, or an eighth

const STEPS = 256; // colours of a scale, mixed once: mixing one costs more than drawing a box

let palette = PALETTES.light;
let diverging, sequential;

export function useTheme(name) {
  palette = PALETTES[name];
  diverging = ramp(palette.diverging);
  sequential = ramp(palette.sequential);
}

function ramp(colours) {
  const ends = colours.map((_, n) => (n * (STEPS - 1)) / (colours.length - 1));
  const scale = scaleLinear(ends, colours).interpolate(interpolateLab);
  return Array.from({ length: STEPS }, (_, n) => scale(n));
}

const pick = (colours, place) =>
  colours[Math.round(Math.min(Math.max(place, 0), 1) * (STEPS - 1))];

export const errorColour = (ratio) => pick(diverging, tickPlace(ratio));
export const shareColour = (share) => pick(sequential, share);
export const boundColour = (bound) => palette.bounds[bound];
export const bounds = () => Object.keys(palette.bounds);

// Ends and middle for the legend.
export const errorTicks = [-7 / 8, -1 / 2, 0, 1, 7];
export const tickPlace = (ratio) => (Math.log2(1 + ratio) / FULL + 1) / 2;

// Changes are smaller than errors: half and double are the ends; of the step, a tenth of it.
const CHANGE_FULL = 1, SHARE_FULL = 0.1;
export const changeColour = (ratio) => pick(diverging, changePlace(ratio));
export const shareChangeColour = (share) => pick(diverging, sharePlace(share));
changeColour.at = shareChangeColour.at = (place) => pick(diverging, place);
const changePlace = (ratio) => (Math.log2(Math.max(1 + ratio, 1e-9)) / CHANGE_FULL + 1) / 2;
const sharePlace = (share) => (share / SHARE_FULL + 1) / 2;
export const changeTicks = [-1 / 2, -0.2, 0, 0.2, 1].map((r) => [changePlace(r), r]);
export const shareChangeTicks = [-0.1, -0.05, 0, 0.05, 0.1].map((r) => [sharePlace(r), r]);

const inks = new Map();

// Black or white text, whichever reads better on a colour ("rgb(r, g, b)").
export function inkOn(colour) {
  if (!inks.has(colour)) inks.set(colour, readable(colour));
  return inks.get(colour);
}

function readable(colour) {
  const [r, g, b] = channels(colour).map((c) => {
    const part = c / 255;
    return part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#000000" : "#ffffff";
}

function channels(colour) {
  if (colour.startsWith("#")) {
    return [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
  }
  return colour.match(/\d+/g).slice(0, 3).map(Number);
}
